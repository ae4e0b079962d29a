"""A request as its caller sees it: the answer's chunks, its ledger, and what becomes of its sound."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import cast

import msgspec

from engine.chunk import Audio, Chunk, Counts, Output, Usage
from engine.control.replica import StageReplica
from engine.control.timeline import Ledger, Timeline
from engine.core import SPEAKER_RATE_HZ, Request
from engine.delivered import count
from engine.pipeline import Terms
from engine.stream import Stream, Taken
from engine.wire import PlayoutState

SLACK_S = 0.1  # no codec's frame lasts longer: sound that ends this near its limit had no room for more


class Chunks:
    """The chunks that the client of a request gets: an async iterator that ends, or raises one EngineError."""

    def __init__(self, request: Request, terms: Terms = ()) -> None:
        self.request = request
        self.timeline = Timeline(time.monotonic(), terms)
        self.stream = Stream()  # bounded by the credit of the runs that fill it, so text never waits behind sound
        self.given: Counts = {}
        self.hosts: set[StageReplica] = set()
        self.state: PlayoutState | None = None
        self.preemptible = request.preemptible
        self._playing_since_s: float | None = None
        self._usage: Usage | None = None

    def __aiter__(self) -> AsyncIterator[Output]:
        return self

    async def __anext__(self) -> Output:
        return cast("Output", await anext(self.stream))  # a stage that would emit another is not hosted

    @property
    def ledger(self) -> Ledger | None:
        """Return where the time to first audio went; None before there is any."""
        return self.timeline.ledger()

    @property
    def marks_ms(self) -> dict[str, float]:
        """Every moment of its timeline so far, since the commit."""
        return {name: (at_s - self.timeline.commit_s) * 1000 for name, at_s in self.timeline.marks.items()}

    @property
    def playing_s(self) -> float | None:
        """Return the seconds for which the answer has been heard; None before it begins to play."""
        return None if self._playing_since_s is None else time.monotonic() - self._playing_since_s

    def claim(self) -> None:
        """Make a preemptible request one like all others from here on: somebody waits for the answer now."""
        self.preemptible = False

    def speculative(self) -> None:
        """Report that nobody hears the answer for now: the user may go on. Requests that somebody awaits come first."""
        self._report("held")

    def confirmed(self) -> None:
        """Report that an answer which was held is awaited."""
        self._report("due")

    def played(self, skipped_s: float = 0.0) -> None:
        """Report that the listener's first sample plays now; until then sound counts as playing once it is made.

        The first ``skipped_s``, which are silence, are not played.
        """
        self._playing_since_s = time.monotonic() - skipped_s
        self._report("playing", skipped_s)

    def put(self, chunk: Chunk, taken: Taken | None = None) -> None:
        """Take a chunk that a stage gives to the client."""
        if isinstance(chunk, Audio):
            self.timeline.mark("audio", time.monotonic())
            if self._playing_since_s is None and self.state != "held":
                self._playing_since_s = time.monotonic()
        if isinstance(chunk, Usage):
            self._usage = chunk
        count(self.given, chunk)
        self.stream.put(chunk, taken)

    def end(self) -> None:
        """Take the end of an answer whose every stage is through: where its sound was cut, its last usage says so."""
        cut = self.given.get("audio", 0) >= (self.request.max_audio_s - SLACK_S) * SPEAKER_RATE_HZ
        if (cut or self.timeline.cut) and self._usage is not None and self._usage.finish == "stop":
            self.put(msgspec.structs.replace(self._usage, finish="length", prompt_ids=()))

    def mark(self, moments: Mapping[str, float]) -> None:
        """Note the times of what happened to the request (monotonic seconds, by name)."""
        for name, at_s in moments.items():
            self.timeline.mark(name, at_s)

    def _report(self, state: PlayoutState, skipped_s: float = 0.0) -> None:
        self.state = state
        for host in {replica.host for replica in self.hosts}:
            host.report(self.request.id, state, skipped_s)
