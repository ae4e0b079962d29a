"""See torchaudio: only its name is asked for."""
