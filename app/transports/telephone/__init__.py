"""Telephone calls: an exchange carries audio and keys, and the server plays the session's answers."""
