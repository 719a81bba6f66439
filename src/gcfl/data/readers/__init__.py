"""One reader per format: a path in, a `Source` out, or one sentence."""
