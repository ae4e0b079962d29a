"""A session with a duplex model: the model itself decides when it speaks, and no turn detector does.

Settings, items, memory, limits and errors work as in any session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from app.realtime.duplex import DuplexConversation
from app.realtime.ports import SOCKET, PlayoutProfile
from app.realtime.protocol import ServerEvent, SessionOptions, client_events
from app.realtime.session import Session
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from engine import Duplex
from engine.aio.task_group import weak_method


class DuplexSession(Session):
    """A session whose audio goes to a ``DuplexConversation`` instead of its input buffer and its responses."""

    def __init__(
        self,
        context: SessionContext,
        duplex: Duplex,
        emit: Callable[[ServerEvent], None],
        asked_model: str = "",
        start: dict[str, Any] | None = None,
        profile: PlayoutProfile = SOCKET,
    ) -> None:
        super().__init__(context, emit, asked_model, start, profile)
        refuse = weak_method(self._report)
        self._duplex = DuplexConversation(
            self.id, context, duplex, self._conversation, self._options, profile, emit, refuse
        )

    async def quiet(self) -> None:
        await self._duplex.responses.quiet()

    def _start(self, tasks: asyncio.TaskGroup) -> None:
        super()._start(tasks)
        self._duplex.start(tasks)

    def _leave(self) -> None:
        super()._leave()
        self._duplex.leave()

    def _set_present(self, present: bool) -> None:
        self._duplex.responses.set_present(present)

    def _fail_all(self, code: str, message: str) -> None:
        self._duplex.end(code, message)

    def _silence(self) -> None:
        self._duplex.responses.silence()

    async def _obey(self, event: client_events.ClientEvent | Refusal) -> None:
        if not await self._duplex.takes(event):
            await super()._obey(event)

    def _configure(self, options: SessionOptions) -> None:
        super()._configure(options)
        self._duplex.configure(options)

    @property
    def _has_spoken(self) -> bool:
        return self._duplex.responses.has_spoken

    def _report(self, refusal: Refusal) -> None:
        self._refuse(refusal, None)


def session_of(
    context: SessionContext,
    emit: Callable[[ServerEvent], None],
    asked_model: str = "",
    start: dict[str, Any] | None = None,
    profile: PlayoutProfile = SOCKET,
) -> Session:
    """Return a new session of the kind that the loaded model needs. Takes the arguments of ``Session``."""
    duplex = context.engine.model.duplex
    if duplex is None:
        return Session(context, emit, asked_model, start, profile)
    return DuplexSession(context, duplex, emit, asked_model, start, profile)
