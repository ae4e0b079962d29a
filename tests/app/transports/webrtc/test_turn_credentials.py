"""Credentials for a TURN server, made for one client and for a while."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from app.settings import IceServer, settings_of
from app.transports.webrtc.turn_credentials import LIFETIME_S, servers_for
from engine import ConfigError

SHARED = IceServer(urls=("turn:turn.example:3478",), secret="north")
PLAIN = IceServer(urls=("stun:stun.example:3478",), username="ann", credential="pass")


@pytest.mark.parametrize("name", ["ann", ""])
def test_a_credential_is_what_coturn_reckons_from_the_name(name: str) -> None:
    """Its user is ``<when it expires>:<anything>``, its password base64(HMAC-SHA1(secret, user))."""
    (server,) = servers_for(name, [SHARED], 1_000_000.7)
    assert server.username == f"{1_000_000 + LIFETIME_S}" + (":ann" if name else "")
    expected = hmac.digest(b"north", (server.username or "").encode(), hashlib.sha1)
    assert base64.b64decode(server.credential or "") == expected
    assert server.secret is None


def test_one_without_a_secret_is_told_as_it_stands() -> None:
    assert next(iter(servers_for("ann", [PLAIN, SHARED], 0.0))) == PLAIN


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"ice_servers": [{"urls": ["turn:x"], "secret": "s", "username": "ann"}]}, r"ice_servers\[0\].secret"),
        ({"ice_servers": [{"urls": ["turn:x"], "secret": ""}]}, r"ice_servers\[0\].secret"),
        ({"ice_servers": [{"urls": ["turn:[2001:db8::1]:3478"]}]}, r"ice_servers\[0\].urls"),
        ({"ice_servers": [{"urls": ["turn:x:port"]}]}, r"ice_servers\[0\].urls"),
        ({"ice_ports": [5000]}, "ice_ports"),
        ({"ice_ports": [5001, 5000]}, "ice_ports"),
        ({"ice_ports": [80, 5000]}, "ice_ports"),
        ({"ice_relay_only": True, "ice_servers": [{"urls": ["stun:x"]}]}, "ice_relay_only"),
        ({"ice_address": "host.example"}, "ice_address"),
    ],
)
def test_a_mistake_in_the_settings_is_told(section: dict[str, object], path: str) -> None:
    with pytest.raises(ConfigError, match=f"server.{path}: "):
        settings_of(section)
