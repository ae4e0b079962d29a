"""Limits on what clients may use: admission, quotas and rate limits. Knows no route and no wire format."""
