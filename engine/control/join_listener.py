"""The listening socket where workers from other machines join. It only admits workers that have the token.

A worker that has authenticated and sent its Join message is passed on as a JoiningWorker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

from engine.control.replica import RemoteWorker
from engine.deployment.config import ClusterSpec, address_of
from engine.errors import ConfigError, WireError
from engine.ipc import links, messages
from engine.ipc.handshake import Doorkeeper, make_token, read_token

log = logging.getLogger(__name__)

SILENCE_S = 5.0  # maximum time from the connection to its Join, which takes milliseconds on any network
STRANGERS = 32  # maximum unauthenticated connections; beyond that the oldest is closed
JOIN_BYTES = 64 << 10  # maximum size of a Join


class JoiningWorker:
    """A worker that connected over the network. It is its own launcher."""

    def __init__(self, join: messages.Join, transport: asyncio.Transport) -> None:
        self.join = join
        self._transport = transport
        self._taken = False

    async def start(self, task: messages.Task, worker: RemoteWorker) -> None:
        """Send the worker its task. It answers with Hello on its link."""
        self._taken = True
        link = links.SocketLink(worker.receive, worker.lost)
        self._transport.set_protocol(link)
        link.connection_made(self._transport)
        self._transport.resume_reading()
        worker.link = link
        link.send(task)
        if self._transport.is_closing():
            worker.lost()

    async def stop(self, worker: RemoteWorker) -> None:
        """Tell the worker to end. A worker that was fenced off will join again."""
        worker.close()

    def refuse(self, code: str, message: str) -> None:
        """Reject the worker with a reason, and close the connection."""
        self._taken = True
        self._transport.write(messages.encode(messages.Refused(code, message)))
        self._transport.close()

    def drop(self) -> None:
        """Close the connection, unless the worker was started or refused."""
        if not self._taken:
            self._transport.abort()


class JoinListener:
    """A listener that calls ``admit`` with every worker that has the token."""

    def __init__(self, token: bytes, admit: Callable[[JoiningWorker], object]) -> None:
        self._token = token
        self._admit = admit
        self._strangers: dict[_JoinConnection, str] = {}  # and their addresses; the oldest is first
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Return its host and port. Call it only after ``open``."""
        assert self._server is not None
        return self._server.sockets[0].getsockname()[:2]

    async def open(self, host: str, port: int) -> None:
        """Start listening. Raises ConfigError if the address cannot be used."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._connection, host, port)
        except OSError as error:
            raise ConfigError(f"cluster.listen: cannot listen on {host}:{port}: {error.strerror}") from None
        log.info("listening for workers on %s:%d", *self.address)

    def close(self) -> None:
        """Stop listening. Workers that have joined stay connected. May be called twice."""
        if self._server is not None:
            self._server.close()
        for stranger in list(self._strangers):
            stranger.drop()

    def _connection(self) -> _JoinConnection:
        return _JoinConnection(Doorkeeper(self._token), self._strangers, self._admit)


class _JoinConnection(asyncio.Protocol):
    """One connection from its first byte to its Join."""

    def __init__(
        self, keeper: Doorkeeper, strangers: dict[_JoinConnection, str], admit: Callable[[JoiningWorker], object]
    ) -> None:
        self._keeper = keeper
        self._strangers = strangers
        self._admit = admit
        self._splitter = messages.Splitter(JOIN_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not inherit from it
        self._timer = asyncio.get_running_loop().call_later(
            SILENCE_S, self._refuse, "it sent no complete Join message in time"
        )
        self._strangers[self] = (transport.get_extra_info("peername") or ("unknown",))[0]
        self._transport.write(self._keeper.greeting)
        if len(self._strangers) > STRANGERS:
            _oldest_of_most(self._strangers)._refuse("too many unauthenticated connections")

    def data_received(self, data: bytes) -> None:
        try:
            if not self._keeper.done:
                answer, data = self._keeper.feed(data)
                self._transport.write(answer)
            for message in self._splitter.feed(data):
                if not isinstance(message, messages.Join):
                    raise WireError(f"its first message is {type(message).__name__} instead of Join")
                return self._enter(message)
        except WireError as error:
            self._refuse(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()

    def drop(self) -> None:
        self._forget()
        self._transport.abort()

    def _enter(self, join: messages.Join) -> None:
        self._forget()
        self._transport.pause_reading()  # its next messages are for the fleet
        links.endure(self._transport)
        self._admit(JoiningWorker(join, self._transport))

    def _refuse(self, why: str) -> None:
        log.warning("a connection from %s is closed: %s", self._strangers.get(self, "unknown"), why)
        self.drop()

    def _forget(self) -> None:
        self._timer.cancel()
        self._strangers.pop(self, None)


def _oldest_of_most(strangers: dict[_JoinConnection, str]) -> _JoinConnection:
    """Return the oldest connection of the address that has the most, so that one address cannot block all others."""
    ((most, _),) = Counter(strangers.values()).most_common(1)
    return next(one for one, address in strangers.items() if address == most)


class Cluster:
    """A deployment's join listener and token file."""

    def __init__(self, spec: ClusterSpec, admit: Callable[[JoiningWorker], object]) -> None:
        self._spec = spec
        self._admit = admit
        self._made: Path | None = None
        self.listener: JoinListener | None = None

    async def open(self) -> None:
        """Read the token file, or create it, and start listening. Raises ConfigError."""
        if self._spec.listen is None or self._spec.token_file is None:
            return
        self.listener = JoinListener(self._token(self._spec.token_file), self._admit)
        await self.listener.open(*address_of(self._spec.listen, "cluster.listen"))

    def _token(self, file: str) -> bytes:
        path = Path(file).expanduser()
        if path.exists():
            return read_token(path)
        self._made = path
        return make_token(path)

    def close(self) -> None:
        """Stop listening, and remove a token file that ``open`` created. May be called twice."""
        if self.listener is not None:
            self.listener.close()
        if self._made is not None:
            self._made.unlink(missing_ok=True)
