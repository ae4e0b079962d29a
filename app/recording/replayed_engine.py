"""The engine as a replayed session sees it: chunks arrive at the times of the recording."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import numpy as np

from app.recording.engine_thread import EngineThread, ThreadedRequest
from app.recording.file import RecordedChunk, RecordedRequest
from app.recording.taps import kind_of, seeded
from app.recording.virtual_loop import VirtualLoop
from engine import Audio, EngineError, Ledger, ModelInfo, Output, Request, StageTime

NOTHING = RecordedRequest()
ENDS = ("end", "error")


class ReplayedEngine:
    """The engine port of a replayed session. ``recorded`` are the recording's requests by number, from 1.

    With ``interims``, interim transcripts are the recording's, because the engine's depend on its speed.
    """

    def __init__(self, recorded: dict[int, RecordedRequest], interims: bool = True) -> None:
        self._interims = interims
        self.thread: EngineThread | None = None
        self._recorded = recorded
        self._numbers = count(1)
        self._open: set[_ReplayedChunks] = set()

    @property
    def model(self) -> ModelInfo:
        return self._started.model

    def holds(self, until_s: float) -> bool:
        """Whether the clock must not reach this time yet, because the engine still works on what is due before it."""
        listening = any(one.listening for one in self._open)
        return (listening and not self._started.idle) or any(one.owes(until_s) for one in self._open)

    @asynccontextmanager
    async def open(self, request: Request, inputs: Any = None) -> AsyncGenerator[Any]:
        number = next(self._numbers)
        recorded = self._recorded.get(number, NOTHING)
        request = seeded(request, recorded.seed or number)
        chunks = _ReplayedChunks(request, inputs, recorded, self._started, self._interims)
        self._open.add(chunks)
        feeding = asyncio.create_task(chunks.feed(), name="feed")
        try:
            yield chunks
        finally:
            self._open.discard(chunks)
            feeding.cancel()
            with suppress(asyncio.CancelledError):
                await feeding
            chunks.cancel()

    def prepare(self, request: Request) -> None:
        """Do nothing: a preparation only saves time."""

    @property
    def _started(self) -> EngineThread:
        assert self.thread is not None
        return self.thread


class _ReplayedChunks:
    """The chunks of one request, in the order and at the times of the recording.

    Chunks that the recording lacks come last, at once. Chunks that only the recording has are left out.
    """

    ledger = Ledger({})
    """The engine's own figures depend on its speed. The session takes those of ``SessionContext.measured``."""

    def __init__(
        self, request: Request, inputs: Any, recorded: RecordedRequest, thread: EngineThread, interims: bool
    ) -> None:
        self._loop: VirtualLoop = asyncio.get_running_loop()  # pyright: ignore[reportAttributeAccessIssue]
        self._inputs: AsyncIterator[Any] | None = inputs
        self._thread = thread
        self._expected = deque(one for one in recorded.chunks if one.kind not in ENDS)
        self._end_s = next((one.at_s for one in recorded.chunks if one.kind in ENDS), recorded.left_s)
        self._failed = any(one.kind == "error" for one in recorded.chunks)
        self._interims = interims
        self._made: deque[Output] = deque()
        self._audio = AudioCutter(one.samples for one in self._expected if one.samples)
        self._error: EngineError | None = None
        self._has_ended = False
        self._arrived = asyncio.Event()
        self._is_waiting = False
        self.listening = inputs is not None
        """Whether the user's turn may go on."""
        loop = self._loop
        self._call = ThreadedRequest(
            request, self.listening, lambda item: loop.call_soon_threadsafe(self._arrive, item)
        )
        thread.send(thread.start, self._call)

    def stage_times(self) -> tuple[StageTime, ...]:
        return ()

    async def feed(self) -> None:
        """Pass the user's turn to the engine."""
        if self._inputs is None:
            return
        async for chunk in self._inputs:
            self._thread.send(self._call.put, chunk)
        self._thread.send(self._call.put, None)
        self.listening = False

    def owes(self, until_s: float) -> bool:
        """Whether the session waits for a chunk that is due by then, and the engine can make it."""
        if not self._is_waiting or self.listening or self._has_ended:
            return False
        return not self._expected or self._expected[0].at_s <= until_s

    def __aiter__(self) -> AsyncIterator[Output]:
        return self

    async def __anext__(self) -> Output:
        while self._expected or self._made or not self._has_ended:
            expected = self._expected[0] if self._expected else None
            if expected is None:
                await self._loop.reach(self._end_s)
            if expected is None and self._failed:
                while not self._has_ended:
                    await self._arrival()
                if self._error is not None:
                    break  # how much an answer contains that fails depends on the engine's speed
            chunk = self._take(expected)
            if chunk is None and not self._has_ended:
                await self._arrival()
                continue
            if expected is not None:
                self._expected.popleft()
            if chunk is not None:
                await self._loop.reach(0.0 if expected is None else expected.at_s)
                return chunk
        await self._loop.reach(self._end_s)
        raise self._error or StopAsyncIteration

    def claim(self) -> None:
        self._thread.send(self._call.report, "claim")

    def speculative(self) -> None:
        self._thread.send(self._call.report, "speculative")

    def confirmed(self) -> None:
        self._thread.send(self._call.report, "confirmed")

    def played(self, skipped_s: float = 0.0) -> None:
        self._thread.send(self._call.report, "played", skipped_s)

    def cancel(self) -> None:
        """Abort the request in the engine."""
        self._thread.send(self._call.cancel)

    async def _arrival(self) -> None:
        self._is_waiting = True
        try:
            self._arrived.clear()
            await self._arrived.wait()
        finally:
            self._is_waiting = False

    def _take(self, expected: RecordedChunk | None) -> Output | None:
        """Remove and return the first chunk of the expected kind, or any chunk after the last recorded one."""
        if self._interims and expected is not None and expected.interim is not None:
            return expected.interim
        for place, chunk in enumerate(self._made):
            if expected is None or kind_of(chunk) == expected.kind:
                del self._made[place]
                return chunk
        return None

    def _arrive(self, item: Output | EngineError | None) -> None:
        if isinstance(item, Audio):
            self._made.extend(self._audio.cut(item))
        elif item is None or isinstance(item, EngineError):
            self._made.extend(self._audio.rest())
            self._error = item
            self._has_ended = True
        elif not (self._interims and kind_of(item) == "Transcript"):
            self._made.append(item)
        self._arrived.set()


class AudioCutter:
    """Cuts an answer's audio into pieces of the recorded sizes, since the engine's own depend on its speed."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self._sizes = deque(sizes)
        self._wave = np.zeros(0, np.float32)
        self._marks: deque[tuple[int, int]] = deque()
        self._position = 0

    def cut(self, audio: Audio) -> Iterator[Audio]:
        """Add audio, and yield the pieces that are complete."""
        self._wave = np.concatenate([self._wave, audio.wave])
        self._marks.extend(audio.marks)
        while self._sizes and len(self._wave) >= self._sizes[0]:
            yield self._piece(self._sizes.popleft())
        if not self._sizes:
            yield from self.rest()

    def rest(self) -> Iterator[Audio]:
        """Yield the audio that is left."""
        if len(self._wave):
            yield self._piece(len(self._wave))

    def _piece(self, samples: int) -> Audio:
        wave = self._wave[:samples]
        self._wave = self._wave[samples:]
        self._position += samples
        marks: list[tuple[int, int]] = []
        while self._marks and self._marks[0][0] <= self._position:
            marks.append(self._marks.popleft())
        return Audio(wave, tuple(marks))
