"""The server's end of a worker: one link, and many runs over it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec

from engine.chunk import Chunk
from engine.core import Request
from engine.errors import EngineError, ReplicaLost, error_of
from engine.ipc import links, messages
from engine.ipc.processor_time import ProcessorTime
from engine.stream import ReplayBuffer, Taken


@dataclass(frozen=True, slots=True)
class Outlet:
    """The callbacks that receive a run's output. No callback waits."""

    give: Callable[[Chunk, bool, bool, Taken], None]
    """``give(chunk, client, onward, taken)``: a chunk for the client, for the next hop, or for both.

    It calls ``taken`` once for each of these receivers, when the chunk has been read or dropped there.
    """
    keep: Callable[[Chunk], None]
    """Receives chunks that stages checkpoint in case their replica is lost."""
    mark: Callable[[Mapping[str, float]], None]
    """Receives events of the run: monotonic seconds by name."""
    moving: Callable[[], None] = lambda: None
    """Called now and then while the run's stages step, even if they produce nothing."""


@dataclass(eq=False, slots=True)
class RemoteRun:
    """The server's end of a run: its input, the receiver of its output, and the credit in both directions.

    At most ``messages.CREDIT`` chunks are under way to the worker, and at most as many from the worker are unread.
    Chunks are passed on as soon as they arrive.
    """

    id: str
    inputs: ReplayBuffer
    out: Outlet
    send: Callable[[messages.Message], None]
    over: asyncio.Future[EngineError | None]
    room: int = messages.CREDIT
    fed_all: bool = False
    unread: int = 0
    owed: int = 0

    def feed(self) -> None:
        """Send the available input, as far as there is credit, and report its end."""
        try:
            while self.room > 0 and (chunk := self.inputs.take()) is not None:
                self.room -= 1
                self.send(messages.Feed(self.id, chunk))
            if self.inputs.ended and not self.fed_all:
                self.fed_all = True
                self.send(messages.End(self.id))
        except EngineError as error:
            self.end(error)

    def receive(
        self, message: messages.Grant | messages.Emit | messages.Marks | messages.End | messages.Failed
    ) -> None:
        match message:
            case messages.Emit(_, chunk, client, onward, kept, marks):
                if marks:
                    self.out.mark(marks)
                for stored in kept:
                    self.out.keep(stored)
                self.owed += 1
                self.unread += client + onward
                self.out.give(chunk, client, onward, self._taken)
            case messages.Marks(_, marks):
                self.out.mark(marks)
            case messages.Grant(_, n):
                self.room += n
                self.feed()
            case messages.End():
                self.end(None)
            case messages.Failed(_, code, text):
                self.end(error_of(code, text))

    def end(self, error: EngineError | None) -> None:
        if not self.over.done():
            self.over.set_result(error)

    def _taken(self) -> None:
        self.unread -= 1
        free = self.owed - self.unread
        if free >= messages.GRANT and not self.over.done():
            self.owed -= free
            self.send(messages.Grant(self.id, free))


class RemoteWorker:
    """One incarnation of a worker. The ``on_lost`` callbacks run once, when its link is gone or it is fenced off."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.link: links.Link | None = None
        self.hello: asyncio.Future[messages.Hello] = asyncio.get_running_loop().create_future()
        self.on_lost: list[Callable[[], None]] = []
        self.on_beat: Callable[[messages.Beat], None] = lambda beat: None
        self.on_blocking: Callable[[messages.Blocking], None] = lambda step: None
        self.on_leave: Callable[[], object] = lambda: None
        self.processor_time: Callable[[], ProcessorTime | None] = lambda: None
        """Reads its processor time; None if unknown."""
        self.gone = asyncio.Event()
        self.fenced = False
        self.hung = False
        """Whether the server fenced the worker off because it was silent or stuck."""
        self.crashed: Callable[[], Awaitable[bool]] = _unknown
        """Returns, once the worker is gone, whether its process crashed.

        False if the process was killed from outside, or if that is unknown.
        """
        self.retired = False
        self.behind_s = 0.0
        """Seconds by which the worker's clock is behind this machine's; 0 on this machine."""
        self._runs: dict[str, RemoteRun] = {}
        self._trying: tuple[str, ...] = ()
        self._count = 0

    @property
    def runs(self) -> int:
        """The number of open runs on the worker."""
        return len(self._runs)

    @property
    def trying(self) -> frozenset[str]:
        """The requests for which the worker did something for the first time, by its last Trying message."""
        return frozenset(run.rpartition("/")[0] for run in self._trying)

    @property
    def alive(self) -> bool:
        return self.link is not None

    def receive(self, message: messages.Message) -> None:
        if self.gone.is_set():
            return  # fenced off: its messages are ignored
        match message:
            case messages.Emit(run, marks=marks) | messages.Marks(run, marks) if (
                marks and self.behind_s and run in self._runs
            ):
                self._runs[run].receive(self._in_our_time(message))
            case messages.Grant() | messages.Emit() | messages.Marks() | messages.End() | messages.Failed():
                if message.run in self._runs:  # otherwise it has been closed meanwhile
                    self._runs[message.run].receive(message)
            case messages.Trying(runs):
                self._trying = runs
            case messages.Hello() if not self.hello.done():
                self.hello.set_result(message)
            case messages.Refused(code, text) if not self.hello.done():
                self.hello.set_exception(error_of(code, text))
            case messages.Beat():
                for run in message.moving:
                    if run in self._runs:
                        self._runs[run].out.moving()
                self.on_beat(message)
            case messages.Blocking():
                self.on_blocking(message)
            case messages.Leave():
                self.on_leave()
            case _:
                pass

    def _in_our_time(self, message: messages.Emit | messages.Marks) -> messages.Emit | messages.Marks:
        marks = {name: at_s + self.behind_s for name, at_s in message.marks.items()}
        return msgspec.structs.replace(message, marks=marks)

    def fence(self) -> None:
        """Fence off the worker: abort its connection and ignore all further messages."""
        link = self.link
        self.fenced = True
        self.lost()
        if link is not None:
            link.abort()

    def lost(self) -> None:
        if self.gone.is_set():
            return
        self.gone.set()
        self.link = None
        if not self.hello.done():
            why = f"the worker {self.id} ended before it was ready; its own messages (above, if it is local) say why"
            self.hello.set_exception(ReplicaLost(why))
            self.hello.exception()  # the waiter may have given up
        for callback in self.on_lost:
            callback()

    async def run(self, opening: messages.Open, inputs: ReplayBuffer, out: Outlet) -> None:
        """Run the stages of ``opening`` on ``inputs`` until they have ended. This call sets the run's id.

        Output goes to ``out`` in order. While the output is unread, the worker pauses after a limited number of chunks.
        Cancelling this call abandons the run. Raises the EngineError with which the run failed.
        """
        id = self._issue(opening.request)
        run = self._runs[id] = RemoteRun(id, inputs, out, self._send, asyncio.get_running_loop().create_future())
        try:
            self._send(msgspec.structs.replace(opening, run=id))
            inputs.source.set_reader(run.feed)
            if error := await run.over:
                raise error
        finally:
            inputs.source.set_reader(None)
            del self._runs[id]
            self._send(messages.Close(id))

    def prepare(self, wanted: messages.Prepare) -> Callable[[], None]:
        """Let a stage prepare for a coming request, for example by a prefill. This call sets the run's id.

        Returns:
            A function that ends the preparation. It may be called at any time.
        """
        id = self._issue(wanted.request)
        self._send(msgspec.structs.replace(wanted, run=id))
        return lambda: self._send(messages.Close(id))

    def _issue(self, request: Request) -> str:
        """Return the id of a request's next run."""
        self._count += 1
        return f"{request.id}/{self._count}"

    def _send(self, message: messages.Message) -> None:
        if self.link is not None:
            self.link.send(message)

    def report(self, request_id: str, state: messages.PlayoutState, skipped_s: float = 0.0) -> None:
        """Send a playback state to every run of a request."""
        for id in self._runs:
            if id.rpartition("/")[0] == request_id:
                self._send(messages.PlayoutUpdate(id, state, skipped_s))

    def close(self) -> None:
        if self.link is not None:
            self._send(messages.Stop())
            self.link.close()


async def _unknown() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class StageReplica:
    """One stage on one worker."""

    id: str
    stage: str
    host: RemoteWorker

    @property
    def worker(self) -> str:
        return self.host.id
