"""Speech synthesis stages."""
