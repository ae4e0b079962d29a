"""An address says whether what is sent to it stays on this machine."""

import pytest

from engine.deployment.remote_hosts import host_of, is_local


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:11434/v1", "http://127.9.9.9", "http://localhost:1234", "http://LOCALHOST", "http://localhost.",
        "http://my.localhost:80", "http://[::1]:8080/v1", "http://[::ffff:127.0.0.1]", "http://0.0.0.0:8080",
    ],
)  # fmt: skip
def test_the_loopback_is_local(url: str) -> None:
    assert is_local(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://192.168.1.2:11434", "https://api.example.org/v1", "http://localhost.example.org", "http://127.0.0.1.nip.io",
        "http://[fe80::1%25eth0]:80", "http://[::ffff:10.0.0.1]", "http://2130706433", "http://box:11434", "http://",
    ],
)  # fmt: skip
def test_all_else_may_lead_elsewhere(url: str) -> None:
    assert not is_local(url)


def test_a_host_is_named_with_its_port_and_without_a_password() -> None:
    assert host_of("http://me:secret@box:11434/v1") == "box:11434"
    assert host_of("http://[::1]:8080/v1") == "[::1]:8080"
