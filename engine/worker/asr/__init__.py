"""Speech recognition: what the recognizers of several libraries share."""
