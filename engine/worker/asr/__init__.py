"""Speech recognition (ASR): code that the recognizers of several libraries share."""
