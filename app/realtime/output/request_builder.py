"""Builds the engine's request for an answer from the session's settings and the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.realtime.conversation import Truncation, check_items, check_tool_choice, is_untranscribed, prompt
from app.realtime.output.response_spec import ResponseSpec
from app.realtime.protocol import HostedItem, Item, ResponseOptions, SessionOptions
from app.realtime.session_context import SessionContext
from app.telemetry import ASKED
from engine import ANSWER, IN_WRITING, Request, ToolDefinition
from engine.core import SpeechHints

LONGEST_LINE_S = 30.0
"""Maximum seconds of a line that is spoken while a tool runs."""


class RequestBuilder:
    """The builder of one session's requests."""

    def __init__(self, session_id: str, context: SessionContext) -> None:
        self._session_id = session_id
        self._context = context
        self.truncation = Truncation(context.engine.model, context.summarize_at)

    def fit(self, spec: ResponseSpec, session: SessionOptions, hosted: tuple[ToolDefinition, ...]) -> tuple[Item, ...]:
        """Return the items for a response's prompt; ``hosted`` are MCP tools.

        Raises Refusal if truncation is disabled, or if the last turn alone exceeds the model's context.
        """
        fitting = self.truncation.fit(session.truncation, spec.items, spec.options, hosted, spec.whole_conversation)
        check_items(fitting, self._context.engine.model, None)
        return fitting

    def build(
        self,
        id: str,
        spec: ResponseSpec,
        items: tuple[Item, ...],
        hosted: tuple[ToolDefinition, ...],
        hints: SpeechHints,
    ) -> Request:
        """Return the request for a response to these items. Raises Refusal."""
        options, utterance = spec.options, spec.utterance
        limits, asked = self._context.limits, options.max_output_tokens
        own = (ToolDefinition(one.name, one.description or "", one.parameters or {}) for one in options.tools)
        tools = (*own, *hosted)
        return Request(
            id=id,
            session=self._session_id,
            owner=ASKED.get().owner,
            messages=prompt(options.instructions, items),
            live=utterance is not None,
            camera=utterance is not None and utterance.watched,
            preemptible=spec.preemptible,
            hints=hints,
            wants=ANSWER if options.speaks else IN_WRITING,
            voice=self._context.voice(options.voice),
            speed=options.audio.output.speed,
            tools=tools,
            tool_choice=_choice(options.tool_choice, tools),
            max_text_tokens=limits.answer_tokens if asked == "inf" else min(asked, limits.answer_tokens),
            max_audio_s=limits.answer_s,
        )

    def lines(self, id: str, options: ResponseOptions, language: str) -> Request:
        """Return the request for lines in a language that are spoken verbatim. The caller sets ``say``."""
        return Request(
            id=id,
            session=self._session_id,
            owner=ASKED.get().owner,
            messages=(),
            hints=SpeechHints(languages=(language,)),
            voice=self._context.voice(options.voice),
            speed=options.audio.output.speed,
            max_audio_s=LONGEST_LINE_S,
        )


def last_untranscribed(items: tuple[Item, ...]) -> str | None:
    """Return the id of the last item if it contains speech that was not transcribed yet; the answer will transcribe
    it.
    """
    last = next((item for item in reversed(items) if not isinstance(item, HostedItem)), None)
    return last.id if is_untranscribed(last) else None


def _choice(choice: str | dict[str, Any], tools: Sequence[ToolDefinition]) -> str:
    """Return ``auto``, ``none``, ``required``, or a function's name. Raises Refusal if no such tool is offered."""
    name = choice if isinstance(choice, str) else str(choice.get("name", "auto"))
    check_tool_choice(name, [tool.name for tool in tools])
    return name
