"""Training of the built-in model: data from scripts, training, export, evaluation."""
