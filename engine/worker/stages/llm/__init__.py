"""Language model stages."""
