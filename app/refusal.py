"""Refusals of a session: an error code of the protocol and a sentence with the reason.

Raised anywhere below a session, and turned into an event only at its root.
"""

from __future__ import annotations

from typing import Literal


class Refusal(Exception):
    """A command that can't be carried out. ``code`` is the protocol's error code, ``param`` the field at fault, if any.

    ``str(refusal)`` is one sentence for the developer of the client. The session continues as if the command had not
    been sent.
    """

    kind: Literal["invalid_request_error", "server_error"] = "invalid_request_error"

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class ServerFault(Refusal):
    """A failure of the server, not of the client."""

    kind = "server_error"


class Closed(Exception):
    """A session or request that the server does not admit now.

    ``status`` is the HTTP status: 503, or 429 where the caller has used up its quota.
    """

    def __init__(self, code: str, message: str, status: int = 503) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
