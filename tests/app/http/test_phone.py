"""The address of the page for a phone, and its QR code."""

from __future__ import annotations

import httpx
import pytest

from app.commands import serve, terminal
from app.http import phone
from app.http.phone import reachable
from app.http.qr_code import qr_code, svg_path
from tests.app.rig import Running

OWN = "192.168.1.20"


@pytest.fixture(autouse=True)
def _network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phone, "addresses", lambda: ["127.0.0.1", "fd00::1", OWN])


@pytest.mark.parametrize(
    ("page", "host", "url"),
    [
        ("http://127.0.0.1:8000/", "127.0.0.1", None),
        ("http://localhost:8000/", "localhost", None),
        ("https://localhost:8443/a/", "0.0.0.0", f"https://{OWN}:8443/a/"),
        ("https://[::1]:8443/", "::", f"https://{OWN}:8443/"),
        ("http://127.0.0.1:8000/", "10.0.0.7", "http://10.0.0.7:8000/"),
        ("http://127.0.0.1:8000/", "fd00::7", "http://[fd00::7]:8000/"),
        ("https://parley.tail1234.ts.net/", "127.0.0.1", "https://parley.tail1234.ts.net/"),
    ],
)
def test_the_address_is_one_that_other_machines_reach(page: str, host: str, url: str | None) -> None:
    assert reachable(page, host) == url


def test_without_a_network_no_phone_reaches_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phone, "addresses", lambda: ["127.0.0.1", "::1"])
    assert reachable("http://127.0.0.1:8000/", "0.0.0.0") is None


async def test_the_page_gets_its_code(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.http) as http:
        page = "https://parley.example.org/"
        answer = (await http.get("/phone", params={"page": page})).json()
        assert answer == {"url": page, "size": len(qr_code(page)) + 8, "path": svg_path(qr_code(page))}
        assert (await http.get("/phone", params={"page": f"{server.http}/"})).json()["url"] is None
        for wrong in ("javascript:alert(1)", "https://" + "a" * 200, "http://["):
            assert (await http.get("/phone", params={"page": wrong})).status_code == 400


def test_the_terminal_shows_the_code_or_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(terminal, "say", said.append)
    monkeypatch.setattr(terminal, "show_code", said.append)
    serve.show_qr_code(f"https://{OWN}:8443")
    assert said[-1] == f"Open on your phone: https://{OWN}:8443"
    assert "█" in said[4]
    serve.show_qr_code(None)
    assert "--host 0.0.0.0 --https auto" in said[-1]
