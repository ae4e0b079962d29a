"""In the place of sox, which the 25 Hz tokenizer imports and the 12 Hz one does not use."""
