"""Audio helpers: resampling and WAV files."""
