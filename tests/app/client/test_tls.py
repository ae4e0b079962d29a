"""A client of an ``https`` server, over both transports."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal

import pytest

from app.access.tls import certificate_of
from app.client import ClientError, connect
from app.client.channel import not_connected
from app.settings import Settings
from tests.app.rig import running, script_spec

Transport = Literal["websocket", "webrtc"]
TRANSPORTS = pytest.mark.parametrize("transport", ["websocket", "webrtc"])


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    certificate = certificate_of(Settings(https="auto"), tmp_path_factory.mktemp("certificate"))
    assert certificate is not None
    return certificate.path


@pytest.fixture
async def https(pem: Path) -> AsyncGenerator[str]:
    """The address of a server with a self-signed certificate."""
    async with running(script_spec(https=str(pem))) as server:
        yield server.http.replace("http:", "https:")


@TRANSPORTS
async def test_a_certificate_of_ssl_cert_file_is_trusted(
    transport: Transport, https: str, pem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    async with connect(https, transport=transport) as client:
        assert (await client.ask("say: one two")).text == "one two"


@TRANSPORTS
async def test_an_unknown_certificate_is_refused_in_one_sentence_until_trust_names_it(
    transport: Transport, https: str, pem: Path
) -> None:
    with pytest.raises(ClientError, match=r"is not trusted: set SSL_CERT_FILE .* pass trust="):
        async with connect(https, transport=transport):
            pass
    trust = ssl.create_default_context(cafile=pem)
    async with connect(https, transport=transport, trust=trust) as client:
        assert (await client.ask("say: one two")).text == "one two"


def test_an_expired_certificate_is_not_called_untrusted() -> None:
    expired = OSError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired")
    assert "is not valid today" in str(not_connected("https://example.org", expired))
