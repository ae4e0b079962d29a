"""The terms on which a session begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.limits.principal import Principal
from app.realtime.ports import SOCKET, IdlePolicy, PlayoutProfile
from app.realtime.protocol import NewItem
from app.realtime.protocol.dialect import REALTIME, Dialect


@dataclass(frozen=True, slots=True)
class Opening:
    """The terms of a new session: its caller, the requested model and the initial settings."""

    caller: Principal
    model: str = ""
    settings: dict[str, Any] | None = None
    profile: PlayoutProfile = SOCKET
    dialect: Dialect = REALTIME
    """The client's dialect, if the transport does not determine it."""
    history: tuple[NewItem, ...] = ()
    """Initial items of the conversation."""
    idle: IdlePolicy | None = None
    """When the session pauses; None: never."""
    record: bool = False
    """Whether the client asked for a recording."""
    live: dict[str, Any] | None = None
    """The settings with which a client of the Live protocol started the session."""

    @property
    def asked_model(self) -> str:
        """The requested model, by its own parameter or by the initial settings."""
        return self.model or str((self.settings or {}).get("model") or "")
