"""Refusals of a session: the protocol's code, and the sentence that says why.

Raised anywhere below a session and turned into an event at its root, nowhere else. Knows no wire format.
"""

from __future__ import annotations

from typing import Literal


class Refusal(Exception):
    """A command that can't be obeyed. ``code`` is the protocol's word, ``param`` the field at fault if there is one.

    ``str(refusal)`` is one sentence for the developer of the client. The session goes on as if nothing had been said.
    """

    kind: Literal["invalid_request_error", "server_error"] = "invalid_request_error"

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class ServerFault(Refusal):
    """The server failed, not the client."""

    kind = "server_error"


class Closed(Exception):
    """A session or request that the server does not admit now.

    ``status`` is the HTTP status: 503, or 429 where the caller has used up its quota.
    """

    def __init__(self, code: str, message: str, status: int = 503) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
