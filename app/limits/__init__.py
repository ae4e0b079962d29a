"""Limits on what clients may use: admission, quotas and rate limits. Independent of routes and wire formats."""
