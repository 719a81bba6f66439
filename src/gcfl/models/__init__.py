"""Networks: by name, as a body and a head, and as a trained model with class names."""

from gcfl.models.network import Network, Output
from gcfl.models.networks import MODELS, ModelOptions, make

__all__ = ["MODELS", "ModelOptions", "Network", "Output", "make"]
