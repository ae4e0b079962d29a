"""Speech recognition stages."""
