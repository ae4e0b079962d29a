"""Each row of the table in ``connections``: a peer that keeps the server waiting is let go, one that goes on is not.

Over real sockets, with a clock that the tests move. The peers are those of whoever has no key.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import psutil
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from app.access.tls import certificate_of
from app.client_address import shared_by
from app.limits.fair_scheduler import LoopTimeBudget
from app.server import Server, config_of
from app.service import Service
from app.settings import Settings
from app.transports.http_protocol import PIECE_BYTES, HttpProtocol
from app.transports.tcp_connections import DEADLINES_S, WAITING, State, TcpConnections
from tests.app.rig import Running, eventually, script_spec
from tests.app.transports.malformed import HEAD, UPGRADE

GET = b"GET /short HTTP/1.1\r\n" + HEAD + b"\r\n"
LARGE = 32 * 1024 * 1024
"""More than the system keeps for a peer that does not read."""


class Clock:
    """An event loop's, which goes on by ``advance``, and next to nothing by itself: the machine may be slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        begun_s, really = loop.time(), loop.time
        self._ahead_s = 0.0
        monkeypatch.setattr(loop, "time", lambda: begun_s + self._ahead_s + (really() - begun_s) / 10)

    async def advance(self, seconds: float) -> None:
        """So much later; what is due by then has been done."""
        self._ahead_s += seconds
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    asyncio.get_running_loop().slow_callback_duration = 1e9  # by its own clock every callback would be slow
    return Clock(monkeypatch)


async def small_app(scope: Scope, receive: Receive, send: Send) -> None:
    """/short answers at once, /body once it has one, /large with much; /cut stops in the middle, and no WebSocket is
    answered."""
    path = scope["path"]
    if scope["type"] == "websocket":
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    if path == "/body":
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size_of(path))]})
    try:
        async with asyncio.timeout(1.0 if path == "/cut" else None):
            await send({"type": "http.response.body", "body": bytes(size_of(path))})
    except TimeoutError:
        pass  # uvicorn closes what is not complete


def size_of(path: str) -> int:
    return LARGE if path in ("/large", "/cut") else 2


class Rig:
    """A server that has nothing but connections."""

    def __init__(self, service: Service, server: Server, port: int) -> None:
        self.service, self.server, self.port = service, server, port
        self.peers: list[asyncio.StreamWriter] = []

    @property
    def connections(self) -> TcpConnections:
        return self.server.connections

    async def peer(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that reads no more than it is asked to."""
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=raw, limit=4096)
        self.peers.append(writer)
        writer.write(data)
        return reader, writer

    @property
    def cut(self) -> float:
        """How many went for another one, as the metrics tell."""
        return self.service.metrics.registry.get_sample_value("parley_connections_cut_total") or 0.0

    def states(self) -> list[State | None]:
        return [connection.state for connection in self.connections]

    async def reaches(self, state: State) -> None:
        """Wait until the one connection that there is is in a state."""
        await eventually(lambda: self.states() == [state])


@asynccontextmanager
async def serving(app: ASGIApp = small_app, tls: ssl.SSLContext | None = None, **server: Any) -> AsyncGenerator[Rig]:
    service = Service(script_spec(**server))
    service.scheduler.now = asyncio.get_running_loop().time  # one clock: deadlines would pass before a turn came
    config = config_of(service)
    config.app, config.lifespan = app, "off"
    config.load()
    config.ssl = tls
    one = Server(config, service)
    one.lifespan = config.lifespan_class(config)
    sock = socket.create_server(("127.0.0.1", 0))
    await one.startup([sock])
    rig = Rig(service, one, sock.getsockname()[1])
    try:
        yield rig
    finally:
        for peer in rig.peers:
            peer.transport.abort()
        for listener in one.servers:
            listener.close()
            await listener.wait_closed()
        for connection in list(rig.connections):
            connection.cut()
        await eventually(lambda: not one.server_state.connections and not one.server_state.tasks)


@pytest.fixture
async def rig(clock: Clock) -> AsyncGenerator[Rig]:
    async with serving() as one:
        yield one


UPLOAD = b"POST /body HTTP/1.1\r\n" + HEAD + b"Content-Length: 1000\r\n\r\n"
SILENT: dict[str, tuple[State, bytes, bytes]] = {
    "says nothing": (State.HEAD, b"", b""),
    "says half a head": (State.HEAD, b"GET /short HTTP/1.1\r\nHost: 127", b"X"),
    "says half a handshake": (State.HEAD, UPGRADE[:100], b""),
    "begins a second request": (State.HEAD, GET + b"G", b"E"),
    "sends no body": (State.BODY, UPLOAD + b"{", b" "),
    "sends no chunk": (State.BODY, b"POST /body HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
    "sends no body that is answered before": (State.REST, UPLOAD.replace(b"/body", b"/short"), b"x"),
    "has no other request": (State.IDLE, GET, b""),
    "reads no answer": (State.READING, GET.replace(b"short", b"large"), b""),
    "reads none of many answers": (State.READING, GET.replace(b"short", b"large") * 20, b""),
    "reads no answer that ends early": (State.CLOSING, GET.replace(b"short", b"cut"), b""),
    "is upgraded by nobody": (State.UPGRADE, UPGRADE, b""),
}
"""What a peer does: the state that it stays in, what it says first, and what it drips."""


@pytest.mark.fault("N4.3")
@pytest.mark.parametrize(("state", "says", "drips"), SILENT.values(), ids=SILENT.keys())
async def test_who_keeps_the_server_waiting_is_let_go(
    state: State, says: bytes, drips: bytes, rig: Rig, clock: Clock
) -> None:
    reader, writer = await rig.peer(says)
    if says == GET + b"G":
        await reader.readline()  # before there is an answer, the server waits for the first request's head
    if state is State.CLOSING:
        await rig.reaches(State.READING)
        await clock.advance(1.1)  # the application gives it up
    await rig.reaches(state)
    for _ in range(4):  # a drop now and then wins no time
        await clock.advance(DEADLINES_S[state] / 4 - 0.2)
        writer.write(drips)
        await asyncio.sleep(0)
    assert rig.states() == [state]
    await clock.advance(1.0)
    await eventually(lambda: not len(rig.connections))


@pytest.mark.fault("N4.3")
async def test_a_handshake_that_never_comes_is_let_go(tmp_path: Path, clock: Clock) -> None:
    async with serving(tls=tls(tmp_path)) as rig:
        await rig.peer()
        await rig.reaches(State.HANDSHAKE)
        await clock.advance(DEADLINES_S[State.HANDSHAKE] - 0.5)
        assert rig.states() == [State.HANDSHAKE]
        await clock.advance(0.6)
        await eventually(lambda: not len(rig.connections))
        assert await asyncio.to_thread(asked_over_tls, rig.port) == 2


async def test_garbage_in_place_of_a_handshake_ends_at_once(tmp_path: Path) -> None:
    async with serving(tls=tls(tmp_path)) as rig:
        reader, _ = await rig.peer(GET)
        assert not (await reader.read()).startswith(b"HTTP")
        await eventually(lambda: not len(rig.connections))


async def test_every_state_in_which_the_server_waits_has_its_peer() -> None:
    """A row that is added to the table needs a peer here."""
    assert {state for state, _, _ in SILENT.values()} | {State.HANDSHAKE} == WAITING | {State.UPGRADE}


async def test_a_slow_reader_gets_all_of_an_answer(rig: Rig, clock: Clock) -> None:
    """It takes twice the time that one who takes nothing has."""
    reader, _ = await rig.peer(GET.replace(b"short", b"large"))
    await rig.reaches(State.READING)
    await reader.readuntil(b"\r\n\r\n")
    left = LARGE
    while left:
        await clock.advance(DEADLINES_S[State.READING] / 2)
        left -= len(await reader.readexactly(min(left, LARGE // 4)))
    await rig.reaches(State.IDLE)


async def test_a_slow_upload_goes_through_in_many_times_a_heads_deadline(rig: Rig, clock: Clock) -> None:
    reader, writer = await rig.peer(UPLOAD)
    for _ in range(10):
        await rig.reaches(State.BODY)
        await clock.advance(DEADLINES_S[State.HEAD] + 2)
        writer.write(bytes(100))
        await writer.drain()
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_many_requests_on_one_connection_each_have_their_time(rig: Rig, clock: Clock) -> None:
    reader, writer = await rig.peer()
    for _ in range(5):
        writer.write(GET[:-2])
        await rig.reaches(State.HEAD)
        await clock.advance(DEADLINES_S[State.HEAD] - 1)
        writer.write(GET[-2:])
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readexactly(2)
        await rig.reaches(State.IDLE)


async def test_a_proxys_connection_still_takes_a_request_after_a_minute(rig: Rig, clock: Clock) -> None:
    """nginx and load balancers reuse a connection for 60 s. If the server closed it before, a request could be lost."""
    reader, writer = await rig.peer(GET)
    for _ in range(2):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readexactly(2)
        await rig.reaches(State.IDLE)
        await clock.advance(61.0)
        writer.write(GET)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_a_peer_that_says_no_more_is_closed_behind_its_answer(rig: Rig, clock: Clock) -> None:
    """asyncio closes a connection whose peer half-closes it, and nobody told how long that may take."""
    _, writer = await rig.peer(GET.replace(b"short", b"large"))
    await rig.reaches(State.READING)
    writer.write_eof()
    await rig.reaches(State.CLOSING)
    await clock.advance(DEADLINES_S[State.CLOSING] + 0.1)
    await eventually(lambda: not len(rig.connections))


async def test_the_pages_files_take_no_descriptors_of_slow_readers(server: Running) -> None:
    large = b"GET /docs/files/swagger-ui-bundle.js HTTP/1.1\r\n" + HEAD + b"\r\n"
    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(never_read(server.port, large * 20)) for _ in range(3)]
        await eventually(lambda: [one.state for one in server.server.connections] == [State.READING] * 3)
        assert not [file for file in psutil.Process().open_files() if file.path.endswith("bundle.js")]
        for peer in reading:
            peer.cancel()
    async with httpx.AsyncClient(base_url=server.http) as http:
        answer = await http.get("/docs/files/swagger-ui-bundle.js")
        assert len(answer.content) == int(answer.headers["content-length"]) > 1_000_000
        again = await http.get("/docs/files/swagger-ui-bundle.js", headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304


async def never_read(port: int, data: bytes) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    cast("asyncio.Transport", writer.transport).pause_reading()
    try:
        writer.write(data)
        await asyncio.Event().wait()
    finally:
        writer.transport.abort()


async def test_nobody_is_cut_for_another_one_while_it_is_served(clock: Clock) -> None:
    async with serving(limits={"idle_connections": 4}) as rig:
        served, _ = await rig.peer(UPGRADE)
        await rig.reaches(State.UPGRADE)
        first, _ = await rig.peer()
        for _ in range(4):
            await rig.peer(UPLOAD)
        assert await first.read() == b"", "it has kept the server waiting for longest"
        await eventually(lambda: sorted(str(state) for state in rig.states()) == sorted(
            str(state) for state in (State.UPGRADE, *[State.BODY] * 4)
        ))  # fmt: skip
        assert rig.cut == 1
        assert not served.at_eof()


async def test_an_upload_that_goes_on_outlives_those_that_do_not(clock: Clock) -> None:
    async with serving(limits={"idle_connections": 4}) as rig:
        reader, writer = await rig.peer(UPLOAD)
        await rig.reaches(State.BODY)
        silent = reader, writer
        for number in range(10):
            silent = await rig.peer(UPLOAD)
            await eventually(lambda: rig.states().count(State.BODY) == min(4, len(rig.connections)))
            writer.write(bytes(100))
            await eventually(lambda number=number: rig.cut >= number - 2)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert not silent[0].at_eof()


async def test_who_has_waited_longest_goes_where_there_is_no_room() -> None:
    book = TcpConnections(most=3, idle=10, idle_per_address=10, shared=lambda _: False)
    first, second, third = (book.accept(f"10.0.0.{number}", nothing) for number in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    first.enter(State.ANSWER)
    assert book.accept("10.0.1.1", nothing) is not None
    assert (first.state, second.state, third.state) == (State.ANSWER, State.GONE, State.HANDSHAKE)
    for connection in list(book):
        connection.enter(State.ANSWER)
    assert book.accept("10.0.1.2", nothing) is None, "everybody is being served"
    assert len(book) == 3


async def test_one_address_has_a_share_and_a_proxys_has_none() -> None:
    book = TcpConnections(most=1000, idle=100, idle_per_address=3, shared=shared_by(["192.0.2.0/24"]))

    def idle(*addresses: str) -> int:
        """How many of these stay."""
        made = [book.accept(address, nothing) for address in addresses]
        stay = [one for one in made if one is not None and one.state is not State.GONE]
        for one in stay:
            one.cut()
        return len(stay)

    assert idle(*["198.51.100.7"] * 9) == 3
    assert idle(*["::ffff:198.51.100.7", "198.51.100.7"] * 4) == 3
    assert idle(*[f"2001:db8::{number:x}" for number in range(9)]) == 3, "a subscriber has 64 bits"
    assert idle(*[f"2001:db8:0:{number:x}::1" for number in range(9)]) == 9
    assert idle(*["192.0.2.9"] * 9) == idle(*["127.0.0.1"] * 9) == idle(*["::1"] * 9) == 9
    assert (len(book), book.idle, book._of) == (0, 0, {}), "nothing is remembered of who has left"


async def test_who_is_served_has_no_part_in_an_addresss_share() -> None:
    book = TcpConnections(most=1000, idle=100, idle_per_address=3, shared=lambda _: False)
    for _ in range(20):
        one = book.accept("198.51.100.7", nothing)
        assert one is not None
        one.enter(State.OPEN)
    assert len(book) == 20
    for connection in list(book):
        connection.gone()


def nothing() -> None:
    """There is no socket behind these."""


def tls(folder: Path) -> ssl.SSLContext:
    certificate = certificate_of(Settings(https="auto"), folder)
    assert certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.path)
    return context


def asked_over_tls(port: int) -> int:
    """How long an answer's body is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port)) as raw, context.wrap_socket(raw) as one:
        one.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answer = b""
        while piece := one.recv(1000):
            answer += piece
    return len(answer.partition(b"\r\n\r\n")[2])


def test_uvicorn_still_makes_what_is_extended_here() -> None:
    """Names that it does not promise to keep."""
    for name in ("handle_events", "handle_websocket_upgrade", "send_400_response", "on_response_complete"):
        assert callable(getattr(HttpProtocol.__mro__[1], name))


async def test_a_large_answer_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pieces leave in slices, too: a peer that reads fast is sent megabytes in one turn of the loop else."""
    pauses = list[None]()
    pause = LoopTimeBudget.pause

    async def counted(self: LoopTimeBudget) -> None:
        pauses.append(None)
        await pause(self)

    monkeypatch.setattr(LoopTimeBudget, "pause", counted)
    async with serving() as rig:
        reader, _ = await rig.peer(GET.replace(b"short", b"large"))
        async with asyncio.timeout(60):
            await reader.readuntil(b"\r\n\r\n")
            left = LARGE
            while left:
                left -= len(await reader.read(1 << 20))
    assert len(pauses) >= LARGE // PIECE_BYTES - 1


async def test_the_pages_files_are_looked_up_without_a_thread(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of forty threads takes the interpreter from the event loop for 5 ms at a time."""
    async with httpx.AsyncClient(base_url=server.http) as http:
        for path in ("/", "/docs/files/swagger-ui.css"):  # that the folders are there is looked at once
            await http.get(path)
        monkeypatch.setattr("anyio.to_thread.run_sync", lambda *args: pytest.fail("a thread was asked"))
        for path, status in (("/", 200), ("/docs/files/swagger-ui.css", 200), ("/no/such", 404), ("/a%00b", 404)):
            assert (await http.get(path)).status_code == status
        assert (await http.get("/" + "a" * 5000)).status_code == 404
