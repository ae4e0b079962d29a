"""Names for what a session makes: 128 random bits, so that no one can guess another's."""

from __future__ import annotations

import secrets


def new_id(kind: str) -> str:
    """``kind`` and 128 random bits in hex, as in ``resp_5b1f…``: within the protocol's usual length."""
    return f"{kind}_{secrets.token_hex(16)}"
