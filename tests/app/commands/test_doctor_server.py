"""What the doctor finds of ports, datagrams, certificates and keys."""

from __future__ import annotations

import datetime
import socket
from pathlib import Path

import pytest

from app.access import tls
from app.access.tls import certificate_of
from app.commands.doctor_server import https, keys, port_free, udp
from app.settings import Settings

NOW = datetime.datetime.now(datetime.UTC)


def given(folder: Path) -> Settings:
    """Settings that name a certificate of 397 days."""
    made = certificate_of(Settings(https="auto"), folder)
    assert made is not None
    return Settings(https=str(made.path))


def test_a_port_is_free_or_somebody_else_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.commands.doctor_server.ASK_S", 0.1)  # what listens there never answers
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert port_free("127.0.0.1", port).level == "ok"
    with socket.create_server(("127.0.0.1", port)) as taken:
        found = port_free("127.0.0.1", port)
    assert (found.level, f"--port {port + 1}" in found.step) == ("fail", True)


def test_datagrams_pass_here_and_not_at_an_address_of_another_machine() -> None:
    assert udp(["127.0.0.1"]).level == "ok"
    found = udp(["127.0.0.1", "192.0.2.77"])
    assert found.level == "warn"
    assert "192.0.2.77" in found.text
    assert "127.0.0.1" not in found.text


def test_a_certificate_ends(tmp_path: Path) -> None:
    settings = given(tmp_path)
    assert https(settings, NOW).level == "ok"
    assert https(settings, NOW + tls.LIFE - datetime.timedelta(days=5)).level == "warn"
    ended = https(settings, NOW + tls.LIFE + datetime.timedelta(days=1))
    assert (ended.level, ended.step) == ("fail", "renew the certificate")


def test_a_certificate_that_is_not_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("no certificate")
    for path in (tmp_path / "x.pem", tmp_path / "none.pem"):
        found = https(Settings(https=str(path)), NOW)
        assert found.level == "fail"
        assert str(path) in found.text


def test_one_that_the_server_signs_for_itself_needs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "when it starts" in https(Settings(https="auto"), NOW).text
    certificate_of(Settings(https="auto"))
    assert "valid until" in https(Settings(https="auto"), NOW).text


def test_without_https_it_depends_on_who_is_to_reach_it() -> None:
    assert https(Settings(), NOW).level == "ok"
    assert https(Settings(host="0.0.0.0"), NOW).step == "parley serve --https auto"


def test_keys_are_there_and_one_s_own(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    assert keys("keys", None, nobody_asks=True).level == "ok"
    assert "server.keys_file" in keys("keys", None, nobody_asks=False).step
    assert (keys("keys", str(path), False).level, str(path) in keys("keys", str(path), False).text) == ("fail", True)
    path.write_text("# none yet\n")
    assert "contains no key" in keys("keys", str(path), False).text
    path.write_text("sk-one-0123456789\nsk-two-0123456789\n")
    path.chmod(0o644)
    assert keys("keys", str(path), False).level == "fail"
    assert "chmod 600" in keys("keys", str(path), False).text
    path.chmod(0o600)
    found = keys("keys", str(path), False)
    assert (found.level, found.text) == ("ok", f"2 in {path}")
    assert "sk-" not in found.text
    path.write_text("sk-one\n")
    assert "too short" in keys("keys", str(path), False).text
