"""Summaries of a long conversation's older turns, written by the language model between the user's turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from app.ids import new_id
from app.realtime.conversation import SUMMARY_INSTRUCTION, Conversation
from app.realtime.output.response_factory import ResponseFactory
from app.realtime.protocol import Item, MessageItem, ServerEvent, server_events
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from app.telemetry import log, log_failure
from engine import EngineError, Message, Preempted, Request, Text, TextPart, Usage

_MOST_WORDS = 400
_MOST_FAILED = 2
"""Attempts in a row without a usable summary, after which the model is not asked for ``_REST_S``."""
_REST_S = 600.0
"""Seconds. Afterwards one attempt is made; if it fails as well, the rest begins again."""


class Summarizer:
    """The summaries of one session. ``tasks`` is set before the first answer.

    A summary never delays a turn. It begins when an answer is complete, holds only slots that nobody else needs, and is
    dropped as soon as the user speaks or a response begins. After two attempts in a row that were dropped or unusable,
    the session uses only the user's own sentences for ten minutes.
    """

    tasks: asyncio.TaskGroup

    def __init__(
        self,
        session_id: str,
        context: SessionContext,
        conversation: Conversation,
        factory: ResponseFactory,
        emit: Callable[[ServerEvent], None],
    ) -> None:
        self._session_id = session_id
        self._context = context
        self._conversation = conversation
        self._factory = factory
        self._emit = emit
        self._older = factory.truncation.older
        self._announced = ""
        self._failed = 0
        """Attempts in a row without a usable summary."""
        self._rests_until_s = 0.0
        self._task: asyncio.Task[bool] | None = None

    def begin(self) -> None:
        """Start a summary, if the conversation has become so long that it needs one."""
        self._announce()
        if self._task is not None or not self._factory.is_crowded:
            return
        if self._context.now() < self._rests_until_s:
            self._use("")
        else:
            self._task = self.tasks.create_task(self._run(), name="summarize")
            self._task.add_done_callback(self._ended)

    def drop(self) -> None:
        """Abort the summary. A later one replaces it."""
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self._task = None
        if task.cancelled():
            self._context.metrics.summaries.labels("dropped").inc()
        is_usable = not task.cancelled() and task.result()
        self._failed = 0 if is_usable else self._failed + 1
        if self._failed >= _MOST_FAILED:
            self._rests_until_s = self._context.now() + _REST_S

    async def _run(self) -> bool:
        """Let a summary stand for older turns: the model's, or if that fails, the user's own sentences.

        Returns whether the model's is used.
        """
        written = ""
        prompt: tuple[Item, ...] = ()
        try:
            task = self._factory.default_task()
            prompt = task.history
            written = await self._written(_request(task.request, self._context.engine.model.context))
        except (Preempted, Refusal):
            self._context.metrics.summaries.labels("dropped").inc()
            return False
        except EngineError as error:
            log("session.summary_failed", session=self._session_id, code=error.code)
        except Exception:  # noqa: BLE001 - a bug of ours must not end the session, and is logged with its place
            log_failure("session.bug", session=self._session_id)
            return False
        self._use(written if self._is_unchanged(prompt) else "")
        return bool(self._older.written)

    def _use(self, written: str) -> None:
        """Let a summary stand for older turns, and the model read the changed prompt before the next turn."""
        self._factory.summarize(written)
        self._announce()
        with suppress(Refusal):  # the next turn reports it
            self._context.engine.prepare(self._factory.default_task().request)

    def _is_unchanged(self, prompt: tuple[Item, ...]) -> bool:
        """Return whether the client has neither deleted nor truncated an item since the model read this prompt.

        The current answer is still in progress, so the prompt contains none of its words.
        """
        read = prompt[len(self._older.beginning(prompt)) :]
        complete = (item for item in read if not (isinstance(item, MessageItem) and item.status == "in_progress"))
        return all(self._conversation.find(item.id) is item for item in complete)

    async def _written(self, request: Request) -> str:
        """Return the model's summary up to its last whole sentence. Raises EngineError."""
        text = finish = ""
        async with self._context.engine.open(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Text):
                    text += chunk.text
                elif isinstance(chunk, Usage):
                    finish = chunk.finish
        return text if finish == "stop" else text[: max(text.rfind(mark) for mark in ".!?。\n") + 1]

    def _announce(self) -> None:
        """Tell the client about a new summary, if it asked for these events."""
        summary = self._older.summary
        if summary in ("", self._announced):
            return
        self._announced = summary
        source = "model" if self._older.written else "extract"
        self._context.metrics.summaries.labels(source).inc()
        log("session.summarized", session=self._session_id, source=source, chars=len(summary))
        if self._factory.options.parley.summaries:
            self._emit(server_events.SummarizedEvent(self._factory.truncation.first, summary, source))


def _request(prompt: Request, context: int) -> Request:
    """Return the request for a summary. It continues the conversation's prompt, which the model has cached."""
    words = min(_MOST_WORDS, context // 32)
    instruction = Message("user", (TextPart(SUMMARY_INSTRUCTION.format(words=words)),))
    return replace(
        prompt,
        id=new_id("summary"),
        messages=(*prompt.messages, instruction),
        wants=frozenset({"text"}),
        tool_choice="none",
        max_text_tokens=2 * words,
        preemptible=True,
    )
