"""The server's end of a worker: one link, many runs over it. Knows the frames, not the process behind them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from engine import wire
from engine.core import Chunk, Request
from engine.errors import ReplicaLost, error_of

Outlet = Callable[[Chunk, bool, bool], Awaitable[None]]
"""Takes what a run gives: (chunk, for the client?, for the next hop?)."""


@dataclass(eq=False, slots=True)
class Inbox:
    """What a run has received and not yet read; bounded by the credit it granted. ``room`` is for what it feeds."""

    messages: deque[wire.Emit | wire.End | wire.Failed] = field(
        default_factory=deque[wire.Emit | wire.End | wire.Failed]
    )
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(wire.CREDIT))

    async def next(self) -> wire.Emit | wire.End | wire.Failed:
        while not self.messages:
            self.arrived.clear()
            await self.arrived.wait()
        return self.messages.popleft()

    def put(self, message: wire.Emit | wire.End | wire.Failed) -> None:
        self.messages.append(message)
        self.arrived.set()


class RemoteWorker:
    """One incarnation of a worker. ``on_lost`` callbacks run once, when its link is gone or it is fenced off."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.link: wire.Link | None = None
        self.hello: asyncio.Future[wire.Hello] = asyncio.get_running_loop().create_future()
        self.on_lost: list[Callable[[], None]] = []
        self.on_beat: Callable[[wire.Beat], None] = lambda beat: None
        self.on_leave: Callable[[], None] = lambda: None
        self.gone = asyncio.Event()
        self.fenced = False
        self._runs: dict[str, Inbox] = {}
        self._count = 0

    @property
    def runs(self) -> int:
        """How many runs are open on it."""
        return len(self._runs)

    @property
    def alive(self) -> bool:
        return self.link is not None

    def receive(self, message: wire.Message) -> None:
        if self.gone.is_set():
            return  # it was given up; whatever it says now comes too late
        match message:
            case wire.Hello() if not self.hello.done():
                self.hello.set_result(message)
            case wire.Refused(code, text) if not self.hello.done():
                self.hello.set_exception(error_of(code, text))
            case wire.Grant(run, n) if run in self._runs:
                for _ in range(n):
                    self._runs[run].room.release()
            case wire.Emit(run) | wire.End(run) | wire.Failed(run) if run in self._runs:
                self._runs[run].put(message)
            case wire.Beat():
                self.on_beat(message)
            case wire.Leave():
                self.on_leave()
            case _:
                pass  # of a run that was closed meanwhile

    def fence(self) -> None:
        """Give it up: nothing that it still says is heard."""
        link, self.fenced = self.link, True
        self.lost()
        if link is not None:
            link.abort()

    def lost(self) -> None:
        if self.gone.is_set():
            return
        self.gone.set()
        self.link = None
        if not self.hello.done():
            self.hello.set_exception(
                ReplicaLost(f"the worker {self.id} ended before it was ready; see its own messages")
            )
            self.hello.exception()  # whoever waited for it may have given up
        for callback in self.on_lost:
            callback()

    async def run(self, request: Request, stages: tuple[str, ...], inputs: AsyncIterator[Chunk], out: Outlet) -> None:
        """Run stages for a request until they have ended, fed by ``inputs``.

        What they give goes to ``out`` in order; while it waits, the worker does, some chunks later. Cancelling
        abandons the run. Raises the EngineError that the run failed with, alone or in a group.
        """
        self._count += 1
        id = f"{request.id}/{self._count}"
        inbox = self._runs[id] = Inbox()
        try:
            self._send(wire.Open(id, request, stages, wire.CREDIT))
            async with asyncio.TaskGroup() as tasks:
                feeding = tasks.create_task(self._feed(id, inbox, inputs), name=f"feed:{id}")
                await self._read(id, inbox, out)
                feeding.cancel()
        finally:
            del self._runs[id]
            self._send(wire.Close(id))

    async def _read(self, id: str, inbox: Inbox, out: Outlet) -> None:
        taken = 0
        while True:
            match await inbox.next():
                case wire.Emit(_, chunk, client, onward):
                    await out(chunk, client, onward)
                    taken += 1
                    if taken % wire.GRANT == 0:
                        self._send(wire.Grant(id, wire.GRANT))
                case wire.Failed(_, code, text):
                    raise error_of(code, text)
                case wire.End():
                    return

    async def _feed(self, id: str, inbox: Inbox, inputs: AsyncIterator[Chunk]) -> None:
        async for chunk in inputs:
            await inbox.room.acquire()
            self._send(wire.Feed(id, chunk))
        self._send(wire.End(id))

    def _send(self, message: wire.Message) -> None:
        if self.link is not None:
            self.link.send(message)

    def report(self, request_id: str, state: wire.PlayoutState) -> None:
        """Pass a playout report on to every run of a request."""
        for id in self._runs:
            if id.rpartition("/")[0] == request_id:
                self._send(wire.Playout(id, state))

    def close(self) -> None:
        if self.link is not None:
            self._send(wire.Stop())
            self.link.close()


@dataclass(frozen=True, slots=True)
class StageReplica:
    """One stage as one worker hosts it."""

    id: str
    stage: str
    host: RemoteWorker

    @property
    def worker(self) -> str:
        return self.host.id
