"""What a server says of itself once it can be talked to."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from app.access.tls import Certificate
from app.commands.serve import about, announcement, repeated
from app.settings import Settings
from engine import ModelInfo

OWN = ["127.0.0.1", "192.168.1.7", "::1", "fd00::7"]
CERTIFICATE = Certificate(Path("/of/parley/https.pem"), Path("x"), "AA:BB")


def said(host: str, https: str | None = None, keys_file: str | None = None) -> list[str]:
    scheme = "http" if https is None else "https"
    url = f"{scheme}://[{host}]:8000" if ":" in host else f"{scheme}://{host}:8000"
    certificate = None if https is None else CERTIFICATE
    return list(announcement(url, Settings(host=host, https=https, keys_file=keys_file), certificate, OWN))


def test_on_this_machine_alone_one_line_is_enough() -> None:
    assert said("127.0.0.1") == ["Parley is ready: talk to it at http://127.0.0.1:8000 (Ctrl-C stops it)"]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7"])
def test_open_to_others_without_https_it_says_what_does_not_work_and_the_command_that_does(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [".venv/bin/parley", "serve", "my config.yaml", "--host", host])
    ready, others, why, command, keys = said(host)
    here = "127.0.0.1" if host == "0.0.0.0" else host
    assert f"at http://{here}:8000 " in ready
    assert "http://192.168.1.7:8000" in others
    assert "127.0.0.1" not in others
    assert "microphone only on https pages" in why
    assert command == f"  .venv/bin/parley serve 'my config.yaml' --host {host} --https auto"
    assert "server.keys_file" in keys


def test_with_https_it_says_the_addresses_to_open() -> None:
    ready, others, why, fingerprint, programs = said("0.0.0.0", "auto", keys_file="keys")
    assert "https://127.0.0.1:8000" in ready
    assert others == "From other machines: https://192.168.1.7:8000"
    assert ("Browsers warn once" in why, fingerprint) == (True, "AA:BB")
    assert "NODE_EXTRA_CA_CERTS=/of/parley/https.pem" in programs


def test_any_address_of_ipv6_is_one_that_can_be_opened() -> None:
    ready, others = said("::")[:2]
    assert "at http://[::1]:8000 " in ready
    assert others == "From other machines: http://192.168.1.7:8000, http://[fd00::7]:8000"


def test_the_same_command_again_names_every_part() -> None:
    options = {"--ears": "zip", "--thinker": "ollama:m", "--voice": "nano"}
    argv = ["/a/parley", "serve", "--thinker", "auto", "--voice=nano", "--port", "8080"]
    assert repeated(argv, options) == [
        "/a/parley", "serve", "--thinker", "ollama:m", "--voice=nano", "--port", "8080", "--ears", "zip",
    ]  # fmt: skip
    assert repeated(["/a/app/__main__.py", "serve", "x.yaml"], {"--ears": "zip"}) == [
        "parley", "serve", "x.yaml", "--ears", "zip",
    ]  # fmt: skip


def test_ears_that_know_another_models_requests_come_with_the_command_for_better_ones() -> None:
    model = ModelInfo(name="m", notes=("Note.",), hears_only_for="nano")
    note, advice = about([model], {})
    assert note == "Note."
    assert re.fullmatch(r"For open speech recognition: `parley pull \S+` \(\d+ MB\), then start again\.", advice)
    assert list(about([ModelInfo(name="m")], {})) == []


def test_several_models_are_named_at_the_start() -> None:
    models = [ModelInfo(name="one", notes=("Note.",)), ModelInfo(name="two", notes=("Note.",))]
    assert list(about(models, {})) == ["Models: one, two", "Note."]
