"""Decide whether a client may connect: origins, API keys, client secrets, TLS."""
