"""Peers that say little and read nothing, from nobody's key: who comes after them is served, and workers come back."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from app.access.tls import certificate_of
from app.settings import Settings
from tests.app.transports.malformed import HEAD, UPGRADE, answer_to, requests
from tests.attacks.raw import CLOSE, PING, TEXT, frame, upgraded
from tests.attacks.target import Target, attacked
from tests.attacks.target import target as new_target

pytestmark = [pytest.mark.attacks, pytest.mark.timeout(900)]

KEY = "k" * 40
GET = b"GET /livez HTTP/1.1\r\n" + HEAD + b"\r\n"
PAGE = b"GET /docs/files/swagger-ui-bundle.js HTTP/1.1\r\n" + HEAD + b"\r\n"
POST = b"POST /v1/audio/speech HTTP/1.1\r\n" + HEAD + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
UNREAD = GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 100000\r\n\r\n")
KINDS: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", b""),
    "half a request": (GET[:30], b""),
    "half a handshake": (UPGRADE[:80], b""),
    "half a second request": (GET, b"G"),
    "a body behind its answer": (UNREAD, b"a"),
    "a body that never comes": (POST, b""),
    "a body of which a byte comes at times": (POST, b" "),
    "many requests, no answer read": (GET * 20, b""),
    "large files, none read": (PAGE * 20, b""),
    "a handshake that is refused": (UPGRADE, b""),
    "an answer, and silence": (GET, b""),
}
"""What each says at first, and once it had an answer or half a second passed."""

CROWD, DESCRIPTORS = 1000, 256
SHORT = "from app.transports.tcp_connections import *; DEADLINES_S[State.HANDSHAKE] = 2.0"
HASTY = "from app.transports import tcp_connections as c; c.DEADLINES_S.update({s: 0.3 for s in c.WAITING})"
NO_DEADLINES = (
    "from app.transports import tcp_connections; "
    "tcp_connections.DEADLINES_S.update(dict.fromkeys(tcp_connections.DEADLINES_S, 3600.0))"
)
LEAKY = """
import os
from app.transports.tcp_connections import TcpConnection
carry = TcpConnection.carry
def keep(self, transport):
    os.open(os.devnull, os.O_RDONLY)
    carry(self, transport)
TcpConnection.carry = keep
"""
IN_ASCII = """
from app.access.security_headers import SecurityHeadersMiddleware
call = SecurityHeadersMiddleware.__call__
async def read(self, scope, receive, send):
    [value.decode("ascii") for _, value in scope.get("headers", ())]
    await call(self, scope, receive, send)
SecurityHeadersMiddleware.__call__ = read
"""
"""What reads a header's bytes as if they could only be ASCII."""
NO_ROOM = NO_DEADLINES + "; tcp_connections.TcpConnections.cut_oldest = lambda self, whose=None: True"


@asynccontextmanager
async def crowd(port: int, count: int, kinds: dict[str, tuple[bytes, bytes]] = KINDS) -> AsyncGenerator[None]:
    """So many slow and silent peers at once; those that are let go come again until this is left."""
    asyncio.get_running_loop().set_debug(False)  # a thousand of them are much for it
    async with asyncio.TaskGroup() as tasks:
        said = list(kinds.values())
        peers = [
            tasks.create_task(_come_again(port, *said[number % len(said)]), name=f"peer:{number}")
            for number in range(count)
        ]
        yield
        for peer in peers:
            peer.cancel()


async def _come_again(port: int, first: bytes, then: bytes) -> None:
    while True:
        with suppress(OSError):
            await _linger(port, first, then)
        await asyncio.sleep(5.0)


async def _linger(port: int, first: bytes, then: bytes) -> None:
    """Say something and then something more, read next to nothing, and stay."""
    loop = asyncio.get_running_loop()
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", port))
        await loop.sock_sendall(peer, first)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await loop.sock_recv(peer, 100)
        while True:
            await loop.sock_sendall(peer, then)
            await asyncio.sleep(2.0)


async def served(target: Target, times: int) -> float:
    """The longest that a new client waits for an answer, in s; each comes over a connection of its own."""
    longest_s = 0.0
    for _ in range(times):
        begun = time.monotonic()
        async with httpx.AsyncClient(timeout=10) as http:
            for path in ("/livez", "/health", "/v1/models"):
                answer = await http.get(target.http + path, headers={"authorization": f"Bearer {KEY}"})
                assert answer.status_code == 200, path
        _, writer = await upgraded(target.port, Authorization=f"Bearer {KEY}")
        writer.close()
        longest_s = max(longest_s, time.monotonic() - begun)
    return longest_s


def keys(folder: Path) -> dict[str, str]:
    (folder / "keys").write_text(f"tester: {KEY}\n", encoding="utf-8")
    (folder / "keys").chmod(0o600)
    return {"keys_file": str(folder / "keys")}


async def comes_back(target: Target) -> float:
    """Seconds until a worker that is killed has a successor."""
    before = {process.pid for process in psutil.Process(target.pid).children(recursive=True)}
    victim = max(before)
    os.kill(victim, signal.SIGKILL)
    begun = time.monotonic()
    headers = {"connection": "close"}  # between two of them it would be idle, and go for a new one
    async with httpx.AsyncClient(timeout=10, headers=headers) as http:
        while time.monotonic() - begun < 60:
            health = await http.get(target.http + "/health")
            now = {process.pid for process in psutil.Process(target.pid).children(recursive=True)}
            if health.status_code == 200 and now - before:
                return time.monotonic() - begun
            await asyncio.sleep(0.2)
    raise AssertionError(f"the worker {victim} did not come back: {target.log[-2000:]}")


async def test_new_clients_are_served_and_a_killed_worker_comes_back(tmp_path: Path) -> None:
    async with attacked(tmp_path, keys(tmp_path), key=KEY, descriptors=DESCRIPTORS) as (target, bystander, peak):
        at_rest = target.descriptors()
        async with crowd(target.port, CROWD):
            await asyncio.sleep(3)
            held = target.descriptors()
            longest_s = await served(target, 5)
            back_s = await comes_back(target)
            longest_s = max(longest_s, await served(target, 5))
        await asyncio.sleep(2)
        left = target.descriptors()
    print(f"descriptors {at_rest} -> {held} -> {left}; new clients {longest_s:.2f} s; a worker back in {back_s:.1f} s")
    print(bystander.waits, f"{peak.grown_mb:.0f} MB")
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms < 100
    assert longest_s < 2
    assert held < DESCRIPTORS - 20
    assert left <= at_rest + 3
    assert peak.grown_mb < 300
    assert target.tracebacks == 0


async def test_without_the_guard_nobody_is_served(tmp_path: Path) -> None:
    """The control: no deadlines, and nobody goes for another one."""
    async with (
        attacked(tmp_path, keys(tmp_path), key=KEY, descriptors=DESCRIPTORS, before=NO_ROOM) as (target, _, _),
        crowd(target.port, CROWD),
    ):
        await asyncio.sleep(3)
        with pytest.raises((httpx.TransportError, OSError, asyncio.IncompleteReadError)):
            await served(target, 1)


@pytest.mark.parametrize("guarded", [True, False])
async def test_no_request_is_an_error_of_ours(tmp_path: Path, guarded: bool) -> None:
    asyncio.get_running_loop().set_debug(False)
    async with attacked(tmp_path, before=HASTY if guarded else HASTY + IN_ASCII) as (target, bystander, peak):
        all_requests, answers = list(requests(seed=17, count=3000 if guarded else 300)), list[bytes]()
        for at in range(0, len(all_requests), 50):
            some = all_requests[at : at + 50]
            answers += await asyncio.gather(*(answer_to(target.port, request) for request in some))
    print(bystander.waits, f"{peak.grown_mb:.0f} MB", f"{len(target.log)} bytes of log")
    wrong = [answer for answer in answers if answer.startswith(b"HTTP/1.1 5")]
    if not guarded:
        assert wrong
        assert target.tracebacks > 0
        return
    assert not wrong
    assert target.tracebacks == 0
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms < 100


@asynccontextmanager
async def over_tls(folder: Path, before: str) -> AsyncGenerator[Target]:
    certificate = certificate_of(Settings(https="auto"), folder)
    assert certificate is not None
    async with new_target(folder, {"https": str(certificate.path)}, before=before, descriptors=DESCRIPTORS) as target:
        yield target


async def test_silent_peers_over_tls_are_let_go(tmp_path: Path) -> None:
    """asyncio would wait a minute for a handshake; here each has two seconds, and who comes later is served at once."""
    async with over_tls(tmp_path, SHORT) as target:
        at_rest = target.descriptors()
        silent = [await asyncio.open_connection("127.0.0.1", target.port) for _ in range(300)]
        held = target.descriptors()
        async with httpx.AsyncClient(verify=False, timeout=10) as https:
            assert (await https.get(f"https://127.0.0.1:{target.port}/health")).status_code == 200
        for reader, _ in silent:
            with suppress(ConnectionError):
                assert await reader.read() == b""
        print(f"descriptors {at_rest} -> {held} -> {target.descriptors()}")
        assert held < DESCRIPTORS - 20
        assert target.tracebacks == 0
        for _, writer in silent:
            writer.close()


async def test_without_the_guard_silent_peers_over_tls_hold_every_descriptor(tmp_path: Path) -> None:
    """The control of the test above."""
    async with over_tls(tmp_path, NO_ROOM) as target:
        silent = [await asyncio.open_connection("127.0.0.1", target.port) for _ in range(300)]
        async with httpx.AsyncClient(verify=False, timeout=5) as https:
            with pytest.raises(httpx.TransportError):
                await https.get(f"https://127.0.0.1:{target.port}/health")
        for _, writer in silent:
            writer.close()


async def _asks(port: int) -> None:
    await answer_to(port, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))


async def _resets(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.sendall(GET[:20])


async def _opens_and_leaves(port: int) -> None:
    reader, writer = await upgraded(port)
    writer.write(frame(PING) + frame(CLOSE))
    await reader.read()
    writer.close()


async def _vanishes_in_a_frame(port: int) -> None:
    _, writer = await upgraded(port)
    writer.write(frame(TEXT, b"{" * 1000)[:500])
    writer.transport.abort()


@pytest.mark.parametrize("leaky", [False, True])
async def test_nothing_is_left_of_those_who_come_and_go(tmp_path: Path, leaky: bool) -> None:
    """``PARLEY_CHURN_S=600`` for the ten minutes, after which memory is looked at, too. A server that keeps a
    descriptor of each is the control."""
    asyncio.get_running_loop().set_debug(False)
    ways, seconds = (
        (_asks, _resets, _opens_and_leaves, _vanishes_in_a_frame),
        float(os.environ.get("PARLEY_CHURN_S", "10")),
    )
    seconds = min(seconds, 5.0) if leaky else seconds
    async with new_target(tmp_path, before=LEAKY if leaky else "") as target:
        at_rest, tasks, first_mb, count = target.descriptors(), await tasks_of(target), 0.0, 0
        begun = time.monotonic()
        while (gone_s := time.monotonic() - begun) < seconds:
            with suppress(ConnectionError):  # as many sessions may still be ending as there may be
                await asyncio.gather(*(way(target.port) for way in ways))
            count += len(ways)
            if gone_s < 60:
                first_mb = max(first_mb, target.own_mb())
        await asyncio.sleep(min(60.0, 6.0 + seconds / 10))
        left, tasks_left, last_mb = target.descriptors(), await tasks_of(target), target.own_mb()
        print(
            f"{count} came; descriptors {at_rest} -> {left}, tasks {tasks} -> {tasks_left}, "
            f"{first_mb:.0f} -> {last_mb:.0f} MB"
        )
        assert (left <= at_rest + 3) != leaky
        assert tasks_left <= tasks + 1
        assert last_mb <= 1.25 * first_mb
        assert target.tracebacks == 0


async def tasks_of(target: Target) -> float:
    async with httpx.AsyncClient() as http:
        page = (await http.get(target.http + "/metrics", headers={"connection": "close"})).text
    return float(next(line for line in page.splitlines() if line.startswith("parley_tasks ")).split()[1])
