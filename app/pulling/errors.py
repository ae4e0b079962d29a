"""Why a model could not be had. A sentence each, for people."""

from __future__ import annotations

from engine.errors import WeightsError


class PullError(WeightsError):
    """What another try would not mend."""


class TryAgain(PullError):
    """What may be over in a moment: a cut, a server that is busy."""
