"""A question to the engine over HTTP, independent of the API: its fields, checks, engine request and response.

Each API (``chat``, ``responses``) converts its body to a Question and formats the answer itself. Knows the parts of
messages, but no API's events.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field

from app.http.answering import answer
from app.http.body import room_of
from app.http.live import EVENTS, ClientGone, Live, Write, while_there
from app.http.messages import ChatMessage, check_texts, engine_messages, with_turn_last
from app.http.names import Names
from app.http.recognition import heard, with_earlier_transcripts
from app.http.strict_schema import check_strict
from app.http_errors import ERRORS, HttpRefusal, refusal_of
from app.ids import new_id
from app.realtime.conversation.model_context import json_size
from app.realtime.conversation.tools import check_tool_choice
from app.realtime.session_context import SessionContext
from app.responses.figures import Figures
from app.service import Service
from app.telemetry import ASKED
from engine import ANSWER, IN_WRITING, JsonFormat, Message, Output, Sampling, TextPart, ToolDefinition
from engine import Request as EngineRequest

Tokens = Annotated[int, Field(ge=1, le=1_000_000)]


class FunctionSpec(BaseModel):
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = Field(default=None, description="Whether the rules of strict mode are checked.")

    def check(self, param: str) -> None:
        """Raise HttpRefusal if the parameters break the rules of strict mode. ``param`` is their path."""
        if self.strict and self.parameters is not None:
            check_strict(self.parameters, f"function {self.name!r}", param)

    def tool(self) -> ToolDefinition:
        return ToolDefinition(self.name, self.description or "", self.parameters or {})


class SamplingFields(BaseModel):
    """Fields of a request that control sampling."""

    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)

    def sampling(self) -> Sampling:
        """Return the sampling settings, with a random seed if the request has none."""
        seed = secrets.randbits(32) if self.seed is None else self.seed
        return Sampling(greedy=self.temperature == 0, temperature=self.temperature, top_p=self.top_p, seed=seed)


@dataclass(frozen=True, slots=True)
class History:
    """The conversation that a question continues.

    ``chars`` counts its characters, ``media_bytes`` the bytes of its images and audio. ``session`` is the engine's
    session that has it cached.
    """

    messages: tuple[Message, ...] = ()
    chars: int = 0
    media_bytes: int = 0
    session: str = field(default_factory=lambda: new_id("sess"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request for an answer. ``path`` is the field of the body that holds the messages."""

    id: str
    path: str
    names: Names
    messages: Sequence[ChatMessage]
    sampling: Sampling
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: str = "auto"
    """``auto``, ``none``, ``required``, or the name of the function to call."""
    most_tokens: int | None = None
    speaks: bool = False
    stop: Sequence[str] = ()
    format: JsonFormat | None = None
    """The JSON that the answer must be; None for text."""
    format_field: str = "response_format"
    instructions: str = ""
    before: History = field(default_factory=History)
    hosted: bool = False
    """Whether the server runs tools of MCP servers, which are not listed yet."""


@dataclass(frozen=True, slots=True)
class EngineCall:
    """The engine's request, its messages that are new in this question, the stop strings, and the model's name."""

    request: EngineRequest
    new: tuple[Message, ...]
    stop: Sequence[str]
    model: str


def with_transcript(messages: tuple[Message, ...], transcript: str | None) -> tuple[Message, ...]:
    """Add the transcript to the audio of the last user message, so that the next request need not transcribe it."""
    at = max((i for i, message in enumerate(messages) if message.role == "user"), default=None)
    if transcript is None or at is None:
        return messages
    return (*messages[:at], heard(messages[at], transcript), *messages[at + 1 :])


class FullRenderer(Protocol):
    """Builds the complete response to a question."""

    async def take(self, chunk: Output) -> None: ...

    async def body(self, figures: Figures) -> dict[str, Any]: ...


class StreamRenderer(Protocol):
    """Streams the response to a question. ``begun`` tells whether anything was sent."""

    @property
    def begun(self) -> bool: ...

    async def take(self, chunk: Output) -> None: ...

    async def end(self, figures: Figures) -> None: ...

    async def fail(self, refusal: HttpRefusal) -> None: ...


W = TypeVar("W", bound=FullRenderer)
S = TypeVar("S", bound=StreamRenderer)
T = TypeVar("T")
Run = Callable[[Service, EngineCall, T], Coroutine[Any, Any, Figures]]
"""A function that runs the engine for an answer, and passes all output to the renderer."""


async def answered_whole(
    service: Service,
    http: Request,
    question: Question,
    teller: Callable[[EngineCall], W],
    run: Run[W] | None = None,
) -> Response:
    """Return a response with the complete answer. Raises one of ERRORS.

    ``run`` produces the answer if it takes more than one engine request.
    """
    try:
        asked = await while_there(http.receive, _asked(service, http, question))
        whole = teller(asked)
        figures = await while_there(http.receive, (run or _once)(service, asked, whole))
    except ClientGone:
        return Response(status_code=499)  # nobody reads it
    return JSONResponse(await whole.body(figures), headers=question.names.headers)


async def answered_live(
    service: Service,
    http: Request,
    question: Question,
    teller: Callable[[EngineCall, Write], S],
    run: Run[S] | None = None,
) -> Response:
    """Return a response that streams the answer. Raises one of ERRORS; errors after the first event become an event."""
    try:
        asked = await while_there(http.receive, _asked(service, http, question))
    except ClientGone:
        return Response(status_code=499)

    async def produce(write: Write) -> None:
        stream = teller(asked, write)
        try:
            await stream.end(await (run or _once)(service, asked, stream))
        except ERRORS as error:
            if not stream.begun:
                raise
            await stream.fail(refusal_of(error))

    return Live(produce, EVENTS, question.names.headers)


async def _once(service: Service, asked: EngineCall, teller: FullRenderer | StreamRenderer) -> Figures:
    return await answer(service, asked.model, asked.request, teller.take, asked.stop)


def refuse_unserved(
    fields: Mapping[str, Any] | None, neutral: Mapping[str, tuple[Any, ...]], why: str = "leave it out"
) -> None:
    """Raise HttpRefusal for unsupported fields that would change the answer.

    ``neutral`` lists these fields, each with the values that mean the same as omitting the field. None always does.
    """
    for name, values in neutral.items():
        value = (fields or {}).get(name)
        if value is not None and value not in values:
            raise HttpRefusal(400, "unsupported_parameter", f"{name} is not supported: {why}.", name)


async def _asked(service: Service, http: Request, question: Question) -> EngineCall:
    """Convert a question to an engine request. Raises one of ERRORS."""
    context = replace(service.context(model=question.names.model), room=room_of(http))
    _check(question, context)
    before, limits = question.before, context.limits
    new = await engine_messages(question.messages, question.path, context, before.media_bytes)
    if context.engine.model.reads_transcripts:
        new = await with_earlier_transcripts(service, question.names.model, before.messages, new)
    said = with_turn_last((*before.messages, *new))
    instructions = (Message("system", (TextPart(question.instructions),)),) if question.instructions else ()
    request = EngineRequest(
        id=question.id,
        session=before.session,
        owner=ASKED.get().owner,
        messages=(*instructions, *said),
        wants=ANSWER if question.speaks else IN_WRITING,
        voice=question.names.voice,
        sampling=question.sampling,
        tools=question.tools,
        tool_choice=question.tool_choice,
        format=question.format,
        max_text_tokens=min(question.most_tokens or limits.answer_tokens, limits.answer_tokens),
        max_audio_s=limits.answer_s,
    )
    return EngineCall(request, new, question.stop, question.names.model)


def _check(question: Question, context: SessionContext) -> None:
    """Check what pydantic can't, before anything is decoded. Raises HttpRefusal or Refusal."""
    model = context.engine.model
    if question.format is not None and "json" not in model.abilities:
        message = f"{model.name} cannot answer in JSON: request text, or use a language model."
        raise HttpRefusal(400, "unsupported_value", message, question.format_field)
    last = len(question.messages) - 1
    roles = [message.role for message in (*question.before.messages, *question.messages)]
    if roles[-1:] == ["assistant"] and not question.hosted:
        message = "The last message is the assistant's: end with a user's or tool's message, or with instructions."
        raise HttpRefusal(400, "invalid_value", message, f"{question.path}.{last}.role" if last >= 0 else question.path)
    check_tool_choice(question.tool_choice, [tool.name for tool in question.tools], question.hosted)
    check_texts(
        question.messages,
        question.path,
        model,
        tools=json_size(question.tools),
        instructions=len(question.instructions),
        before=question.before.chars,
    )
