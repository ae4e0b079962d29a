"""Optional libraries and the model files that they load."""
