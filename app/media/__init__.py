"""Decoding of media from clients to samples and pixels, within size limits. Independent of routes and sessions."""
