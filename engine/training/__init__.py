"""How the built-in weights were made. Nothing imports it, and it is not installed."""
