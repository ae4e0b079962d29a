"""Delays between attempts: exponential back-off."""

from __future__ import annotations


def back_off_s(retry: int, first_s: float, last_s: float) -> float:
    """Return the seconds before a retry, counted from 0: ``first_s``, twice as many each time, at most ``last_s``."""
    return min(last_s, first_s * 2.0 ** min(retry, 16))
