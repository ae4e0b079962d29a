"""Parts that text-to-speech stages share."""
