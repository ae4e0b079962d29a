"""Identifiers for everything that a session makes: 128 random bits, so that nobody can guess another client's.

Several servers behind one proxy each have a name (``server.name``). It is part of the ids that clients send back, so
that the proxy can route by id and needs no table.
"""

from __future__ import annotations

import re
import secrets

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")
"""Valid server names. Such a name needs no escaping in URLs and headers, and contains no ``_``."""

USER = r"\A[!-~]{0,128}\Z"
"""Pattern of the names that clients give their users: printable ASCII without spaces."""

_NAMED = re.compile(rf"[a-z]+_({NAME.pattern})_[0-9a-f]+")


def new_id(kind: str, server: str | None = None) -> str:
    """Return a new id: ``kind`` and 128 random bits in hex, such as ``resp_5b1f…`` or ``resp_NAME_5b1f…``.

    The second form is for a server with a name. Its length is within the protocol's usual limit.
    """
    return f"{prefix(kind, server)}{secrets.token_hex(16)}"


def prefix(kind: str, server: str | None) -> str:
    """Return the start of an id: its kind, and the name of the server that made it."""
    return f"{kind}_" if server is None else f"{kind}_{server}_"


def elsewhere(id: str, server: str | None) -> str:
    """Return a sentence for an unknown id that another server made; otherwise an empty string."""
    named = _NAMED.fullmatch(id)
    if named is None or named[1] == server:
        return ""
    here = "one without a name" if server is None else f"{server!r}"
    return (
        f" The server {named[1]!r} made it, and this one is {here}: either {named[1]!r} is gone, or the proxy "
        "does not route by the server name in ids."
    )
