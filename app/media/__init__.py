"""Decode the bytes that clients send to samples and pictures, within size limits."""
