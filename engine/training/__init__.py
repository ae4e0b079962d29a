"""Training of the built-in weights. Nothing imports it, and it is not installed."""
