"""Speech while tools run: lines about pending calls, and answers to results that nobody requested.

The lines are one out-of-band response for each wait. It ends when the calls have returned, when the user speaks, or
when another response begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.realtime.output.active_responses import ActiveResponses
from app.realtime.output.line_source import LineSource
from app.realtime.output.pending_calls import PendingCalls
from app.realtime.output.response_factory import ResponseFactory
from app.realtime.output.response_runner import ResponseRunner
from app.realtime.output.tool_phrases import text_of
from app.realtime.protocol import ServerEvent, server_events
from app.realtime.session_context import SessionContext
from app.refusal import Refusal


class ToolSpeech:
    """The speech about one session's pending calls."""

    def __init__(
        self,
        context: SessionContext,
        calls: PendingCalls,
        factory: ResponseFactory,
        active: ActiveResponses,
        runner: ResponseRunner,
        emit: Callable[[ServerEvent], None],
    ) -> None:
        self._context = context
        self._calls = calls
        self._factory = factory
        self._active = active
        self._runner = runner
        self._emit = emit
        self._source: LineSource | None = None
        self._following: asyncio.Task[None] | None = None
        self._waits = context.waits.part()

    def follow(self) -> None:
        """Follow the pending calls from now on, if there are any."""
        self._active.changed.set()
        if self._calls.busy and (self._following is None or self._following.done()):
            self._following = self._runner.tasks.create_task(self._follow(), name="tool_speech")

    def leave(self) -> None:
        """Stop when the client has left."""
        if self._following is not None:
            self._following.cancel()

    async def _follow(self) -> None:
        changed = self._active.changed
        while self._calls.busy:
            changed.clear()
            await self._waits.alarm(changed, self._step())
        self._end_lines()

    def _step(self) -> float | None:
        """Say what is due. Returns the seconds until the next line; None to wait for a change."""
        active = self._active
        if active.lines is None:
            self._source = None
        if self._calls.wants_answer or not self._calls.audible:
            self._end_lines()
        ending = self._source is None and active.lines is not None
        if ending or active.occupied or active.away or (self._source is not None and self._source.busy):
            return None
        if self._calls.wants_answer:
            self._answer()
            return None
        due = self._calls.due(active.sound_ends_s)
        if due is None or not self._factory.default_options.speaks:
            return None
        at_s, line = due
        wait_s = at_s - self._context.now()
        if wait_s > 0:
            return wait_s
        self._calls.said(line)
        self._say(text_of(line, self._factory.language))
        return None

    def _say(self, text: str) -> None:
        if self._source is None:
            self._source = LineSource(self._context.engine, self._active.changed.set)
            self._active.begin_lines(self._factory.lines(self._source))
        self._source.say(text)

    def _answer(self) -> None:
        """Answer the conversation."""
        self._calls.asked()
        try:
            self._active.answer_soon(asked=False)
        except Refusal as refusal:
            self._calls.keep_results()
            self._emit(server_events.ErrorEvent(refusal, None))

    def _end_lines(self) -> None:
        """End the lines after the one that is being spoken."""
        if self._source is not None:
            self._source.end()
            self._source = None
