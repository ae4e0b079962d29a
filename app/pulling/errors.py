"""Reasons why a model could not be had, a sentence each, for people."""

from __future__ import annotations

from engine.errors import WeightsError


class PullError(WeightsError):
    """An error that another try would not mend."""


class TryAgain(PullError):
    """An error that may be over in a moment: a cut, a server that is busy."""
