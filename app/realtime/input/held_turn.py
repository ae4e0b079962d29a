"""The room of a turn that the client ends, as with a key that is held. Knows no clock and no session."""

from __future__ import annotations

from app.realtime.conversation import Utterance
from engine import MIC_RATE_HZ

KEPT = MIC_RATE_HZ
"""Samples that are kept of a line on which nobody speaks: a word may have begun in them."""


class HeldTurn:
    """``limit`` is the most samples of a turn. What comes while nobody speaks fills nothing."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.clear()

    def clear(self) -> None:
        """A turn begins."""
        self.voiced = False
        """Whether somebody has spoken in it."""
        self._refused = False

    def gives_way(self, utterance: Utterance, samples: int) -> bool:
        """Whether a turn in which nobody has spoken so far is to give way to what comes: so many more samples."""
        return not self.voiced and samples + KEPT <= self._limit < utterance.samples + samples

    def has_room(self, utterance: Utterance, samples: int) -> bool:
        """Whether so many more fit into the turn. Raises Refusal where they first do not, and not for every packet."""
        if self._refused:
            return False
        self._refused = utterance.samples + samples > self._limit
        utterance.check_room(samples)
        return True
