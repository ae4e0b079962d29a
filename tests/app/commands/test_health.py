"""The health check of a container: the state of the server at a port, or why there is none."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from app.commands import health


@contextmanager
def answering(text: bytes) -> Generator[int]:
    """A server that gives the same bytes to the first client that connects; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(text)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def reply(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("status", "state", "code"), [("200 OK", "ready", 0), ("503 Service Unavailable", "draining", 1)]
)
def test_the_state_is_told_and_only_ready_is_well(
    status: str, state: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(reply(status, b'{"status": "%s"}' % state.encode())) as port:
        assert health.main([str(port)]) == code
    assert capsys.readouterr().out == f"{state}\n"


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering(reply("200 OK", b'{"status": "ready"}')) as port:
        assert health.state_of(port) == "ready"


def test_nobody_there_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert health.state_of(port).startswith(f"no Parley server responds at port {port}: ")


def test_it_imports_nothing_heavy() -> None:
    """It runs every 30 seconds."""
    heavy = {"numpy", "httpx2", "fastapi", "typer", "cryptography", "engine"}
    code = f"import sys, app.commands.health; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
