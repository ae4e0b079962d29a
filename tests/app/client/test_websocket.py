"""Where a server's Realtime endpoint lies, by what its user calls the server."""

from __future__ import annotations

import pytest

from app.client import ClientError
from app.client.websocket import _socket_url


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000", "ws://127.0.0.1:8000/v1/realtime?model=m"),
        ("https://example.org/", "wss://example.org/v1/realtime?model=m"),
        ("wss://example.org/v1", "wss://example.org/v1/realtime?model=m"),
        ("wss://example.org/openai/v1/realtime", "wss://example.org/openai/v1/realtime?model=m"),
        ("ws://example.org/v1?version=2", "ws://example.org/v1/realtime?version=2&model=m"),
    ],
)
def test_the_path_is_the_endpoints(url: str, address: str) -> None:
    assert _socket_url(url, "m") == address


def test_what_is_no_address_is_one_sentence() -> None:
    for url in ("example.org", "ftp://example.org", "http://"):
        with pytest.raises(ClientError, match="not a valid server URL"):
            _socket_url(url, "m")
