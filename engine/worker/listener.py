"""One request's listener: how much sound they have, and how long it lasts. Pure: times are given, in monotonic
seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Listener:
    """The sound that one request's listener has, and when they began to play it."""

    arrived_s: float = 0.0
    committed: bool = True
    """Whether the user's turn is over (False while it is still being spoken)."""
    speculative: bool = False
    """Whether nobody is to hear it yet: the turn that it answers may go on."""
    produced_s: float = 0.0
    started_s: float | None = None
    again_s: float = 0.0
    """Seconds that another replica had given of an answer that goes on here."""
    made_s: float = 0.0
    """Seconds made here, with what was given before."""

    def resume(self, given_s: float, playing_s: float | None, now_s: float) -> None:
        """Go on for a listener who has got ``given_s`` elsewhere and has been playing for ``playing_s``."""
        self.again_s = self.produced_s = given_s
        self.started_s = None if playing_s is None else now_s - playing_s

    def slack_s(self, now_s: float) -> float:
        """Audio produced and not yet played; nothing has started: nothing runs dry."""
        return self.produced_s if self.started_s is None else self.produced_s - (now_s - self.started_s)

    def produce(self, audio_s: float, now_s: float) -> None:
        """Audio leaves. Until a playout report says otherwise, a listener plays from its first sample on."""
        new_s = min(audio_s, self.made_s + audio_s - self.again_s)
        self.made_s += audio_s
        if new_s <= 0:
            return
        if self.started_s is None:
            self.started_s = None if self.speculative else now_s
        elif self.slack_s(now_s) < 0:  # it ran dry: it goes on from here
            self.started_s = now_s - self.produced_s
        self.produced_s += new_s
