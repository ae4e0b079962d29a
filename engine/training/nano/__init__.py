"""The built-in model, step by step: data from scripts, training, export, evaluation."""
