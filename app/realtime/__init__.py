"""One voice conversation: its session, input, output and history, independent of any transport."""
