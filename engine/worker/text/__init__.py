"""Text to tokens: chat templates and tokenizers."""
