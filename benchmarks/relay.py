"""The floor under a hand-over across processes: the same bytes from one process through a second to a third, bare.

No engine, no frames, no credit: the relay reads and writes. What it takes is what two wake-ups of processes cost here,
once with an event loop at all three places, once with threads that block. `benchmarks/overhead.py` prints it beside
its own figures, from the same run.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import threading
import time

WAYS = ("asyncio", "blocking")
FRAME_BYTES = 48  # bytes of the engine's frame with one number in it, its length included
PAUSE_S = 0.002
_STAMP = struct.Struct("d")


def relayed(way: str, n: int) -> list[float]:
    """Seconds that each of n frames took, sent one at a time."""
    (first, near), (far, last) = socket.socketpair(), socket.socketpair()
    with first, last:
        sender = _child(way, "send", first, n)
        receiver = _child(way, "receive", last, n)
    relay = threading.Thread(target=asyncio.run, args=(_relay(near, far),)) if way == "asyncio" else None
    relay = relay or threading.Thread(target=_relay_blocking, args=(near, far))
    relay.start()
    took, _ = receiver.communicate(timeout=60)
    relay.join()
    sender.wait(timeout=60)
    return json.loads(took)


def _child(way: str, role: str, sock: socket.socket, n: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.relay", way, role, str(sock.fileno()), str(n)]
    return subprocess.Popen(command, pass_fds=[sock.fileno()], stdout=subprocess.PIPE if role == "receive" else None)


class _Pass(asyncio.Protocol):
    """Hands on what comes; with no ``onward`` it notes how long that took."""

    def __init__(self, onward: asyncio.Transport | None, gone: asyncio.Event, took: list[float]) -> None:
        self._onward = onward
        self._gone = gone
        self._took = took
        self._read = b""

    def data_received(self, data: bytes) -> None:
        if self._onward is not None:
            self._onward.write(data)
            return
        self._read += data
        while len(self._read) >= FRAME_BYTES:
            self._took.append(time.monotonic() - _STAMP.unpack_from(self._read)[0])
            self._read = self._read[FRAME_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._onward is not None:
            self._onward.close()
        self._gone.set()


async def _relay(near: socket.socket, far: socket.socket) -> None:
    gone, over, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
    onward, _ = await loop.create_connection(lambda: _Pass(None, over, []), sock=far)
    await loop.create_connection(lambda: _Pass(onward, gone, []), sock=near)
    await gone.wait()
    await over.wait()


def _relay_blocking(near: socket.socket, far: socket.socket) -> None:
    with near, far:
        while data := near.recv(1 << 16):
            far.sendall(data)


async def _send(sock: socket.socket, n: int) -> None:
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=sock)
    for _ in range(n):
        await asyncio.sleep(PAUSE_S)
        transport.write(_frame())
    transport.close()
    await asyncio.sleep(PAUSE_S)


async def _receive(sock: socket.socket) -> list[float]:
    gone, took = asyncio.Event(), list[float]()
    await asyncio.get_running_loop().create_connection(lambda: _Pass(None, gone, took), sock=sock)
    await gone.wait()
    return took


def _send_blocking(sock: socket.socket, n: int) -> None:
    with sock:
        for _ in range(n):
            time.sleep(PAUSE_S)
            sock.sendall(_frame())


def _receive_blocking(sock: socket.socket) -> list[float]:
    took: list[float] = []
    with sock:
        while data := sock.recv(FRAME_BYTES, socket.MSG_WAITALL):
            took.append(time.monotonic() - _STAMP.unpack_from(data)[0])
    return took


def _frame() -> bytes:
    return _STAMP.pack(time.monotonic()).ljust(FRAME_BYTES)


def main(way: str, role: str, fd: str, n: str) -> None:
    sock, blocking = socket.socket(fileno=int(fd)), way == "blocking"
    if role == "send":
        _send_blocking(sock, int(n)) if blocking else asyncio.run(_send(sock, int(n)))
    else:
        json.dump(_receive_blocking(sock) if blocking else asyncio.run(_receive(sock)), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
