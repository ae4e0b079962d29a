"""Written English as one says it. Knows no model and no voice, and imports nothing of ours."""
