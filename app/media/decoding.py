"""Decoding of clients' media in helper processes, in fair turns.

A hostile file can only exhaust its own process, which is killed and replaced. Each client has one job at a time, and
one process is always left for images, so that no image waits for a video.
"""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from app.media.containers import MediaError
from app.media.decode_jobs import AudioJob, ImageJob, Job, Result, VideoJob
from app.media.decoder import Decoder
from app.media.images import Image
from app.media.videos import Video
from engine import CameraFeed, Overloaded
from engine.core import Pcm

MOST_PROCESSES = 3
LINE = 16
"""Maximum number of recordings that are being decoded or wait, as many as there are HTTP answers."""
_GROW_S = 0.25
"""Seconds that a job waits before another process starts for it, which takes half a second of CPU time."""
_STOPPING = "the server is stopping"
_IDLE_S = 60.0
"""Seconds after which an unused process ends, except for the last one."""


@dataclass(eq=False, slots=True)
class _Turn:
    job: Job
    client: Hashable
    begins: asyncio.Event = field(default_factory=asyncio.Event)


class Decoding:
    """The decoder processes of a server. The first one starts with ``start``, or with the first job."""

    def __init__(self, make: Callable[[], Decoder] | None = None) -> None:
        self._make = make or Decoder
        self._threads = ThreadPoolExecutor(MOST_PROCESSES, "decoding")
        self._decoders = set[Decoder]()
        self._idle = list[tuple[Decoder, float]]()
        """Processes without a job, and when each finished its last job. The most recent one is used first."""
        self._lock = threading.Lock()
        self._is_closed = False
        self._line = list[_Turn]()
        self._running = list[_Turn]()
        self._places = 1
        """Jobs that may run at once: the processes that were started or are about to. Only the loop changes it."""
        self._ended = deque[None]()
        """An entry for each process that ended after ``_IDLE_S`` and still counts in ``_places``."""
        self._growing: asyncio.TimerHandle | None = None
        self._served = Counter[Hashable]()
        """Jobs begun for each client that waits or runs. The client with the fewest is next."""

    def start(self) -> None:
        """Start the first process in advance. Returns immediately."""
        self._threads.submit(self._add)

    async def image(self, image: Image, client: Hashable, side: int = 0) -> NDArray[np.uint8]:
        """Decode an image to uint8 [height, width, 3], no side longer than ``side`` pixels unless that is 0.

        ``client`` identifies whose turn it is. Raises MediaError.
        """
        job = ImageJob(image.kind, image.width, image.height, side)
        result = await self._result(job, io.BytesIO(image.data), client)
        return result.arrays[0]

    async def samples(self, file: BinaryIO, limit_s: float, client: Hashable) -> Pcm:
        """Run ``decode_audio``, and close the file. Raises MediaError, and Overloaded if LINE recordings wait."""
        result = await self._result(AudioJob(limit_s), file, client)
        return result.arrays[0]

    async def video(self, file: BinaryIO, limit_s: float, feed: CameraFeed, client: Hashable) -> Video:
        """Run ``decode_video``, and close the file. Raises MediaError, and Overloaded if LINE recordings wait."""
        result = await self._result(VideoJob(limit_s, feed), file, client)
        frames, *pcm = result.arrays
        return Video(frames, result.fps, pcm[0] if pcm else None)

    async def close(self) -> None:
        """Kill the processes. May be called twice."""
        if self._growing is not None:
            self._growing.cancel()
        with self._lock:
            self._is_closed = True
            decoders = [*self._decoders]
        for decoder in decoders:
            decoder.kill()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        for decoder in decoders:
            decoder.close()

    async def _result(self, job: Job, file: BinaryIO, client: Hashable) -> Result:
        recordings = [one for one in (*self._line, *self._running) if not isinstance(one.job, ImageJob)]
        if len(recordings) >= LINE and not isinstance(job, ImageJob):
            raise Overloaded(f"{len(recordings)} recordings wait to be decoded; try again later.")
        turn = _Turn(job, client)
        self._line.append(turn)
        self._begin_turns()
        left = threading.Event()
        running = None
        try:
            await turn.begins.wait()
            if self._is_closed:
                raise MediaError(_STOPPING)
            running = asyncio.get_running_loop().run_in_executor(self._threads, self._run, job, file, left)
            running.add_done_callback(lambda done: self._end(turn, done))
            return await asyncio.shield(running)
        finally:
            left.set()
            if running is None:
                self._leave(turn)

    def _leave(self, turn: _Turn) -> None:
        """Remove a turn whose client left before its job began."""
        (self._running if turn in self._running else self._line).remove(turn)
        self._forget(turn.client)
        self._begin_turns()

    def _end(self, turn: _Turn, done: asyncio.Future[Result]) -> None:
        if not done.cancelled():
            done.exception()  # mark it as retrieved: the client may have left
        self._running.remove(turn)
        self._forget(turn.client)
        self._begin_turns()

    def _forget(self, client: Hashable) -> None:
        if all(one.client != client for one in (*self._line, *self._running)):
            del self._served[client]

    def _begin_turns(self) -> None:
        """Begin the jobs that may run now: the clients that were served least often first, then by arrival."""
        while self._ended:
            self._ended.pop()
            self._places = max(1, self._places - 1)
        for turn in sorted(self._line, key=lambda one: self._served[one.client]):
            if self._may_run(turn, self._places):
                self._line.remove(turn)
                self._running.append(turn)
                self._served[turn.client] += 1
                turn.begins.set()
                if not isinstance(turn.job, ImageJob) and self._places == 1 and not self._is_closed:
                    self._add_place()  # for images, which must not wait for it to start
        if self._line and self._growing is None and self._places < MOST_PROCESSES:
            self._growing = asyncio.get_running_loop().call_later(_GROW_S, self._grow)

    def _grow(self) -> None:
        """Start one more process if a job that waits since ``_GROW_S`` could run in it."""
        self._growing = None
        if any(self._may_run(turn, self._places + 1) for turn in self._line):
            self._add_place()
        self._begin_turns()

    def _add_place(self) -> None:
        self._places += 1
        self._threads.submit(self._add)

    def _may_run(self, turn: _Turn, places: int) -> bool:
        """Whether a job may begin where ``places`` jobs may run. Recordings leave one of several places for images."""
        running = self._running
        if len(running) >= places or any(one.client == turn.client for one in running):
            return False
        if isinstance(turn.job, ImageJob):
            return True
        recordings = [one.job for one in running if not isinstance(one.job, ImageJob)]
        has_video = isinstance(turn.job, VideoJob) and any(isinstance(one, VideoJob) for one in recordings)
        return len(recordings) < max(1, places - 1) and not has_video

    def _run(self, job: Job, file: BinaryIO, left: threading.Event) -> Result:
        decoder = self._taken()
        try:
            return decoder.run(job, file, left)
        finally:
            self._put_back(decoder)

    def _taken(self) -> Decoder:
        """Return an idle process, or a new one."""
        with self._lock:
            while self._idle:
                decoder, _ = self._idle.pop()
                if decoder.alive:
                    return decoder
                self._end_process(decoder)
            return self._new()

    def _put_back(self, decoder: Decoder) -> None:
        """Keep a process for the next job, and end those that were idle for long. A killed one is replaced at once."""
        with self._lock:
            if not decoder.alive:
                self._end_process(decoder)
                if self._is_closed:
                    return
                decoder = self._new()
            now_s = time.monotonic()
            self._idle.append((decoder, now_s))
            while now_s - self._idle[0][1] > _IDLE_S:
                self._end_process(self._idle.pop(0)[0])
                self._ended.append(None)

    def _add(self) -> None:
        """Start a process in advance."""
        with self._lock:
            self._idle.append((self._new(), time.monotonic()))

    def _new(self) -> Decoder:
        if self._is_closed:
            raise MediaError(_STOPPING)
        decoder = self._make()
        self._decoders.add(decoder)
        return decoder

    def _end_process(self, decoder: Decoder) -> None:
        self._decoders.discard(decoder)
        decoder.close()
