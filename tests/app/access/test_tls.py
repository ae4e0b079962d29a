"""Certificates: given ones, and the one that a server signs for itself."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import ssl
import stat
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from websockets.asyncio.client import connect
from websockets.typing import Origin

from app.access import tls
from app.access.tls import Certificate, certificate_of
from app.settings import Settings, settings_of
from engine import ConfigError
from tests.app.rig import ROOT, Client, running, script_spec

AUTO = Settings(https="auto", allowed_hosts=("voice.example",))


def made(folder: Path, settings: Settings = AUTO) -> Certificate:
    certificate = certificate_of(settings, folder)
    assert certificate is not None
    return certificate


def names(certificate: Certificate) -> set[str]:
    known = x509.load_pem_x509_certificate(certificate.path.read_bytes())
    return {str(one.value) for one in known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value}


def test_plain_http_is_the_default() -> None:
    assert certificate_of(settings_of({})) is None


def test_it_is_made_once_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "parley"
    first = made(folder)
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == [first.path]
    assert made(folder) == first
    assert len(first.fingerprint) == 32 * 3 - 1
    assert names(first) >= {"localhost", "127.0.0.1", "::1", "voice.example"}


def test_it_is_made_anew_for_a_new_name_or_near_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = made(tmp_path)
    second = made(tmp_path, Settings(https="auto", allowed_hosts=("other.example",)))
    assert second.fingerprint != first.fingerprint
    assert "other.example" in names(second)
    monkeypatch.setattr(tls, "SPARE", tls.LIFE + datetime.timedelta(days=1))
    assert made(tmp_path, Settings(https="auto", allowed_hosts=("other.example",))).fingerprint != second.fingerprint


def test_one_that_is_made_anew_keeps_the_names_of_another_server_of_its_user(tmp_path: Path) -> None:
    """Else the two would take turns, and those who trust the file would trust one of them."""
    made(tmp_path)
    other = made(tmp_path, Settings(https="auto", allowed_hosts=("other.example",)))
    assert names(other) >= {"voice.example", "other.example"}
    assert made(tmp_path) == other


async def test_one_that_is_renewed_on_disk_is_served_without_a_restart(tmp_path: Path) -> None:
    """Files that can't be used, as while they are written, change nothing."""
    first, second = made(tmp_path / "one"), made(tmp_path / "two", Settings(https="auto", allowed_hosts=("b.example",)))
    served = tmp_path / "served.pem"
    served.write_bytes(first.path.read_bytes())
    async with running(script_spec(https=str(served))) as server:
        assert await shown(server.port) == first.fingerprint
        served.write_bytes(second.path.read_bytes()[:300])
        assert await shown(server.port) == first.fingerprint
        served.write_bytes(second.path.read_bytes())
        assert await shown(server.port) == second.fingerprint
        served.unlink()
        assert await shown(server.port) == second.fingerprint


async def shown(port: int) -> str:
    """The fingerprint of the certificate with which a handshake is answered."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    digest = hashlib.sha256(found).hexdigest().upper()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def test_a_damaged_file_is_replaced_and_an_unwritable_folder_named(tmp_path: Path) -> None:
    (tmp_path / "https.pem").write_text("nonsense")
    assert names(made(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"server\.https: cannot store a certificate in .*/file"):
        made(tmp_path / "file")


def test_files_that_are_missing_or_do_not_fit_are_named(tmp_path: Path) -> None:
    one, two = made(tmp_path / "one"), made(tmp_path / "two")
    pem = str(one.path)
    assert made(tmp_path, Settings(https=pem)).fingerprint == one.fingerprint
    assert made(tmp_path, Settings(https=pem, https_key=pem)).key_path == one.path
    with pytest.raises(ConfigError, match=r"server\.https: no such file"):
        made(tmp_path, Settings(https=str(tmp_path / "none.pem")))
    with pytest.raises(ConfigError, match="can't be used"):
        made(tmp_path, Settings(https=str(ROOT / "README.md")))
    with pytest.raises(ConfigError, match="KEY_VALUES_MISMATCH"):
        made(tmp_path, Settings(https=pem, https_key=str(two.path)))
    with pytest.raises(ConfigError, match=r"server\.https_key: requires server\.https"):
        certificate_of(Settings(https_key=pem))


async def test_sessions_and_answers_go_over_it(tmp_path: Path) -> None:
    """Verified as any other certificate, by a client that trusts it; and by nobody else."""
    pem = str(made(tmp_path).path)
    async with running(script_spec(https=pem)) as server:
        trusting = ssl.create_default_context(cafile=pem)
        origin = f"https://127.0.0.1:{server.port}"
        async with connect(server.ws.replace("ws:", "wss:"), ssl=trusting, origin=Origin(origin)) as socket:
            await Client(socket).alive()
        async with httpx.AsyncClient(verify=trusting, base_url=f"https://localhost:{server.port}") as http:
            body = {"model": "script", "input": "one two", "response_format": "pcm"}
            assert len((await http.post("/v1/audio/speech", json=body)).content) == 2 * 2 * 0.04 * 48_000
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(server.ws.replace("ws:", "wss:"))
