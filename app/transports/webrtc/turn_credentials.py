"""STUN and TURN servers for one client, with temporary credentials of its own.

Source: draft-uberti-behave-turn-rest-00, 2.2, as in coturn (``use-auth-secret``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import replace

from app.settings import IceServer

LIFETIME_S = 2 * 3600
"""Validity in seconds: a call that starts late in the first hour may last another one."""


def servers_for(name: str, servers: Iterable[IceServer], now_s: float) -> Iterator[IceServer]:
    """Yield the servers for a client with this name (which may be empty), without secrets. ``now_s`` is Unix time."""
    for one in servers:
        if one.secret is None:
            yield one
            continue
        expires = str(int(now_s) + LIFETIME_S)
        username = f"{expires}:{name}" if name else expires
        digest = hmac.new(one.secret.encode(), username.encode(), hashlib.sha1).digest()
        yield replace(one, username=username, credential=base64.b64encode(digest).decode(), secret=None)
