"""Names for what a session makes: 128 random bits, so that no one can guess another's.

Where several servers stand behind one proxy, each has a name (``server.name``). It stands in the ids that clients bring
back, so that the proxy finds the server whose they are, and keeps no table of its own.
"""

from __future__ import annotations

import re
import secrets

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")
"""The names of servers: in addresses and in headers they stand as they are, and no ``_`` is in them."""

_NAMED = re.compile(rf"[a-z]+_({NAME.pattern})_[0-9a-f]+")


def new_id(kind: str, server: str | None = None) -> str:
    """``kind`` and 128 random bits in hex, as in ``resp_5b1f…``; with a server's name, ``resp_NAME_5b1f…``.

    It is within the protocol's usual length.
    """
    return f"{prefix(kind, server)}{secrets.token_hex(16)}"


def prefix(kind: str, server: str | None) -> str:
    """The beginning of an id: its kind, and the name of the server that finds it."""
    return f"{kind}_" if server is None else f"{kind}_{server}_"


def elsewhere(id: str, server: str | None) -> str:
    """A sentence for an id that is not found, where it says that another server made it; else nothing."""
    named = _NAMED.fullmatch(id)
    if named is None or named[1] == server:
        return ""
    here = "one without a name" if server is None else f"{server!r}"
    return (
        f" The server {named[1]!r} made it, and this one is {here}: either {named[1]!r} is gone, or the proxy in "
        "front of them does not go by the names in ids."
    )
