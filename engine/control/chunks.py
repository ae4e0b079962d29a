"""A request as its caller sees it: the answer's chunks, its ledger, and the reports on its playback."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import cast

import msgspec

from engine.chunk import Audio, Chunk, Counts, Output, Text, Usage
from engine.control.replica import StageReplica
from engine.control.timeline import Ledger, Timeline
from engine.core import SPEAKER_RATE_HZ, Request
from engine.delivered import count
from engine.ipc.messages import PlayoutState
from engine.pipeline import Terms
from engine.stream import Stream, Taken

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
        self._pieces = 0  # of text: about as many tokens

    def __aiter__(self) -> AsyncIterator[Output]:
        return self

    async def __anext__(self) -> Output:
        return cast("Output", await anext(self.stream))  # a stage that would emit another is not hosted

    @property
    def ledger(self) -> Ledger | None:
        """Return the parts of the time to first audio; None before the first audio."""
        return self.timeline.ledger()

    @property
    def marks_ms(self) -> dict[str, float]:
        """All marks of its timeline so far, in milliseconds since the commit."""
        return {name: (at_s - self.timeline.commit_s) * 1000 for name, at_s in self.timeline.marks.items()}

    @property
    def playing_s(self) -> float | None:
        """Return the seconds since the answer began to play; None before."""
        return None if self._playing_since_s is None else time.monotonic() - self._playing_since_s

    def claim(self) -> None:
        """Make the request no longer preemptible: its answer is awaited now."""
        self.preemptible = False

    def speculative(self) -> None:
        """Report that the answer is held back, because the user may go on speaking. Awaited requests come first."""
        self._report("held")

    def confirmed(self) -> None:
        """Report that an answer that was held back is awaited."""
        self._report("due")

    def played(self, skipped_s: float = 0.0) -> None:
        """Report that the first sample plays now. Before this report, audio counts as playing as soon as it is made.

        The first ``skipped_s`` seconds, which are silence, are not played.
        """
        self._playing_since_s = time.monotonic() - skipped_s
        self._report("playing", skipped_s)

    def put(self, chunk: Chunk, taken: Taken | None = None) -> None:
        """Pass a chunk of a stage to the client."""
        if isinstance(chunk, Audio):
            self.timeline.mark("audio", time.monotonic())
            if self._playing_since_s is None and self.state != "held":
                self._playing_since_s = time.monotonic()
        if isinstance(chunk, Usage):
            self._usage = chunk
        elif isinstance(chunk, Text):
            self._pieces += 1
        count(self.given, chunk)
        self.stream.put(chunk, taken)

    def end(self) -> None:
        """End an answer whose stages are all done. If its audio was cut off, send its Usage again with that finish.

        A thinker that was stopped with its voice has sent none; then its pieces of text count as tokens.
        """
        cut = self.given.get("audio", 0) >= (self.request.max_audio_s - SLACK_S) * SPEAKER_RATE_HZ
        usage = self._usage or Usage(output_tokens=self._pieces)
        if (cut or self.timeline.cut) and usage.finish == "stop":
            self.put(msgspec.structs.replace(usage, finish="length", prompt_ids=()))

    def mark(self, moments: Mapping[str, float]) -> None:
        """Note events of the request: monotonic seconds, by name."""
        for name, at_s in moments.items():
            self.timeline.mark(name, at_s)

    def _report(self, state: PlayoutState, skipped_s: float = 0.0) -> None:
        self.state = state
        for host in {replica.host for replica in self.hosts}:
            host.report(self.request.id, state, skipped_s)
