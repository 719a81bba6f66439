"""Handwritten digits over ten clients with doubtful labels, as a Flower app."""
