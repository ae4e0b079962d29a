"""Code that text-to-speech (TTS) stages share."""
