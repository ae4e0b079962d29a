"""A request as its caller sees it: the answer's chunks, its timing, and the reports on its playback."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import cast

import msgspec

from engine.chunk import Audio, Chunk, Counts, Output, Text, Usage
from engine.control.replica import StageReplica
from engine.control.timeline import Ledger, StageTime, Timeline
from engine.core import SPEAKER_RATE_HZ, Request, StageInfo
from engine.delivered import count
from engine.ipc.messages import PlayoutState
from engine.pipeline import Terms
from engine.stream import Stream, Taken

SLACK_S = 0.1  # longer than any codec frame: audio that ends this close to its limit was cut off


class Chunks:
    """The chunks of an answer: an async iterator that ends, or raises one EngineError."""

    def __init__(self, request: Request, terms: Terms = (), stages: Sequence[StageInfo] = ()) -> None:
        self.request = request
        self.timeline = Timeline(time.monotonic(), terms, stages)
        self.stream = Stream()  # bounded by the credit of the runs that fill it, so text never waits for audio
        self.given: Counts = {}
        self.hosts: set[StageReplica] = set()
        self.state: PlayoutState | None = None
        self.preemptible = request.preemptible
        self._playing_since_s: float | None = None
        self._usage: Usage | None = None
        self._pieces = 0  # of text: about the number of tokens

    def __aiter__(self) -> AsyncIterator[Output]:
        return self

    async def __anext__(self) -> Output:
        return cast("Output", await anext(self.stream))  # workers reject stages that emit other chunks

    @property
    def ledger(self) -> Ledger | None:
        """Return the parts of the time to first audio; None before the first audio."""
        return self.timeline.ledger()

    def stage_times(self) -> tuple[StageTime, ...]:
        """Return when each stage has worked on the request so far."""
        return self.timeline.stage_times()

    @property
    def marks_ms(self) -> dict[str, float]:
        """All timeline marks so far, in milliseconds since the commit (the end of the user's turn)."""
        return {name: (at_s - self.timeline.commit_s) * 1000 for name, at_s in self.timeline.marks.items()}

    @property
    def playing_s(self) -> float | None:
        """Return the seconds since the answer began to play; None before."""
        return None if self._playing_since_s is None else time.monotonic() - self._playing_since_s

    def claim(self) -> None:
        """Make the request no longer preemptible, because its answer is now awaited."""
        self.preemptible = False

    def speculative(self) -> None:
        """Record that the answer is held back, because the user may go on speaking.

        Requests with a waiting listener come first.
        """
        self._report("held")

    def confirmed(self) -> None:
        """Record that a listener now waits for an answer that was held back."""
        self._report("due")

    def played(self, skipped_s: float = 0.0) -> None:
        """Report that playback starts now. Without this report, audio counts as playing as soon as it is made.

        Args:
            skipped_s: Seconds of silence at the beginning that are not played.
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
        """End an answer whose stages have all ended.

        If its audio was cut off, send Usage again with finish "length". A thinker that was stopped together with its
        voice has sent no Usage. Each Text chunk then counts as a token.
        """
        cut = self.given.get("audio", 0) >= (self.request.max_audio_s - SLACK_S) * SPEAKER_RATE_HZ
        usage = self._usage or Usage(output_tokens=self._pieces)
        if (cut or self.timeline.cut) and usage.finish == "stop":
            self.put(msgspec.structs.replace(usage, finish="length", prompt_ids=()))

    def mark(self, moments: Mapping[str, float]) -> None:
        """Record events of the request: monotonic seconds by name."""
        for name, at_s in moments.items():
            self.timeline.mark(name, at_s)

    def _report(self, state: PlayoutState, skipped_s: float = 0.0) -> None:
        self.state = state
        for host in {replica.host for replica in self.hosts}:
            host.report(self.request.id, state, skipped_s)
