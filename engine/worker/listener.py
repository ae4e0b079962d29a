"""The audio that one request's listener has received and played. Pure: times are arguments, in monotonic seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Listener:
    """The audio buffer of one request's listener."""

    arrived_s: float = 0.0
    """When the request arrived, or its live turn ended."""
    committed: bool = True
    """Whether the user's turn has ended."""
    speculative: bool = False
    """Whether the answer is held back, because the user may go on speaking."""
    produced_s: float = 0.0
    """Seconds of audio that have been produced, here and on a lost replica."""
    started_s: float | None = None
    """When playback started; None before."""
    again_s: float = 0.0
    """Seconds of audio that a lost replica had produced of this answer."""
    made_s: float = 0.0
    """Seconds produced here, including audio that repeats the lost replica's."""

    def resume(self, given_s: float, playing_s: float | None, now_s: float) -> None:
        """Continue the answer of a lost replica.

        The listener has received ``given_s`` seconds and played ``playing_s`` seconds of it (None: playback has not
        started).
        """
        self.again_s = self.produced_s = given_s
        self.started_s = None if playing_s is None else now_s - playing_s

    def slack_s(self, now_s: float) -> float:
        """Return the seconds of audio that are produced but not yet played. Before playback, all of it counts."""
        return self.produced_s if self.started_s is None else self.produced_s - (now_s - self.started_s)

    def produce(self, audio_s: float, now_s: float) -> None:
        """Record new audio. Until a playout report says otherwise, playback starts with the first sample."""
        new_s = min(audio_s, self.made_s + audio_s - self.again_s)
        self.made_s += audio_s
        if new_s <= 0:
            return
        if self.started_s is None:
            self.started_s = None if self.speculative else now_s
        elif self.slack_s(now_s) < 0:  # playback had stopped for lack of audio: it continues now
            self.started_s = now_s - self.produced_s
        self.produced_s += new_s
