"""``POST /v1/chat/completions``: one answer to a conversation, as text or speech, whole or streamed.

Source: openai-python ``types/chat``; what is streamed has the shape of ``chat.completion.chunk``. Knows no tensor.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from app.http.answering import answer
from app.http.body import Responses, StrictRoute, room_of
from app.http.completion import StreamedCompletion, WholeCompletion
from app.http.live import ClientGone, Live, Write, while_there
from app.http.messages import ChatMessage, check_texts, engine_messages, with_turn_last
from app.http.names import AnyVoice, Names, names_of_model, names_of_voice
from app.http.sound import Format
from app.http.trouble import RESPONSES, HttpRefusal
from app.ids import new_id
from app.realtime.conversation.model_context import json_size
from app.realtime.session_context import SessionContext
from app.service import Service
from engine import ANSWER, IN_WRITING, Sampling, Tool
from engine import Request as EngineRequest

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "web_search_options": ({},),
    "response_format": ({"type": "text"},),
}
"""Fields that would change the answer, and are not served: None or these values mean the same as leaving them out.
Other fields that are not served change nothing in the meaning of an answer, and are ignored."""


class AudioParams(BaseModel):
    voice: AnyVoice = None
    format: Format | None = Field(default=None, description="Without it, a stream is pcm16 and a whole answer wav.")


class FunctionSpec(BaseModel):
    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None

    def tool(self) -> Tool:
        return Tool(self.name, self.description or "", self.parameters or {})


class ToolSpec(BaseModel):
    type: Literal["function"] = "function"
    function: FunctionSpec


class ChosenFunction(BaseModel):
    name: str


class ToolChoice(BaseModel):
    type: Literal["function"] = "function"
    function: ChosenFunction


class StreamOptions(BaseModel):
    include_usage: bool = False


StopString = Annotated[str, Field(min_length=1, max_length=500)]
Tokens = Annotated[int, Field(ge=1, le=1_000_000)]


class ChatRequest(BaseModel):
    """One request for a completion. Other fields are refused if they would change the answer, like response_format,
    else ignored."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[ChatMessage] = Field(min_length=1, max_length=2000, fail_fast=True)
    modalities: list[Literal["text", "audio"]] | None = Field(default=None, max_length=8, fail_fast=True)
    audio: AudioParams | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    tools: list[ToolSpec] | None = Field(default=None, max_length=128, fail_fast=True)
    tool_choice: Literal["auto", "none", "required"] | ToolChoice | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: StopString | Annotated[list[StopString], Field(max_length=4, fail_fast=True)] | None = Field(
        default=None, description="The answer ends before the first of these; its sound with its last whole word."
    )

    @property
    def speaks(self) -> bool:
        return "audio" in (self.modalities or ())

    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def chosen(self) -> str:
        """``auto``, ``none``, ``required``, or the name of the one function to call."""
        choice = self.tool_choice
        return choice.function.name if isinstance(choice, ToolChoice) else choice or "auto"

    def sampling(self) -> Sampling:
        """Return how the answer is drawn: without a seed every answer is drawn anew."""
        seed = secrets.randbits(32) if self.seed is None else self.seed
        return Sampling(greedy=self.temperature == 0, temperature=self.temperature, top_p=self.top_p, seed=seed)


def chat(service: Service) -> APIRouter:
    """The route, for one server."""
    router = APIRouter(route_class=StrictRoute, tags=["Chat"], responses=RESPONSES)
    media: Responses = {200: {"content": {"application/json": {}, "text/event-stream": {}}}}

    @router.post("/v1/chat/completions", summary="Answer a conversation", responses=media, response_model=None)
    async def complete(request: Request, body: ChatRequest) -> Response:  # pyright: ignore[reportUnusedFunction]
        names = _names(service, body)
        try:
            context = replace(service.context(), room=room_of(request))
            asked = await while_there(request.receive, _asked(service, context, body, names))
        except ClientGone:
            return Response(status_code=499)  # nobody reads it, and what it sent need not be decoded
        if body.stream:
            return _streamed(service, body, asked, names)
        return await _whole(service, body, asked, names, request)

    return router


def _streamed(service: Service, body: ChatRequest, asked: EngineRequest, names: Names) -> Response:
    with_usage = body.stream_options is not None and body.stream_options.include_usage

    async def produce(write: Write) -> None:
        stream = StreamedCompletion(write, asked.id, names.model, with_usage, _format(body, "pcm16"))
        await stream.run(answer(service, asked, stream.take, body.stops()))

    return Live(produce, "text/event-stream", names.headers)


async def _whole(service: Service, body: ChatRequest, asked: EngineRequest, names: Names, request: Request) -> Response:
    whole = WholeCompletion(asked.id, names.model, _format(body, "wav"))
    try:
        figures = await while_there(request.receive, answer(service, asked, whole.take, body.stops()))
    except ClientGone:
        return Response(status_code=499)  # nobody reads it
    return JSONResponse(await whole.body(figures, int(time.time())), headers=names.headers)


def _format(body: ChatRequest, otherwise: Format) -> Format | None:
    """The answer's sound format; None if it makes none."""
    if not body.speaks:
        return None
    return (body.audio.format if body.audio is not None else None) or otherwise


def _names(service: Service, body: ChatRequest) -> Names:
    """Return what the answer is made with. Raises HttpRefusal."""
    if not body.speaks:
        return names_of_model(service, body.model)
    return names_of_voice(service, body.model, body.audio.voice if body.audio is not None else None, "audio.voice")


async def _asked(service: Service, context: SessionContext, body: ChatRequest, names: Names) -> EngineRequest:
    """The engine's request. Raises HttpRefusal, MediaError, MemoryFull or ShareTaken."""
    _check(body)
    tools = tuple(tool.function.tool() for tool in body.tools or ())
    check_texts(body.messages, json_size(tools), context.engine.model)
    limit = body.max_completion_tokens or body.max_tokens or context.limits.answer_tokens
    return EngineRequest(
        id=new_id("chatcmpl"),
        session=new_id("sess"),
        messages=await engine_messages(with_turn_last(body.messages), context),
        wants=ANSWER if body.speaks else IN_WRITING,
        voice=names.voice,
        sampling=body.sampling(),
        tools=tools,
        tool_choice=body.chosen(),
        max_text_tokens=min(limit, context.limits.answer_tokens),
        max_audio_s=context.limits.answer_s,
    )


def _check(body: ChatRequest) -> None:
    """Check what pydantic can't see. Raises HttpRefusal."""
    if body.messages[-1].role == "assistant":
        message = "The last message is the assistant's: an answer is made to a user's or a tool's, or to instructions."
        raise HttpRefusal(400, "invalid_value", message, f"messages.{len(body.messages) - 1}.role")
    names = {tool.function.name for tool in body.tools or ()}
    if body.chosen() not in {"auto", "none", *names, *(("required",) if names else ())}:
        message = f"tool_choice asks for a call of {body.chosen()[:100]!r}, and tools has no such function."
        if body.chosen() == "required":
            message = "tool_choice is 'required', and tools is empty."
        raise HttpRefusal(400, "invalid_value", message, "tool_choice")
    for name, neutral in _NEUTRAL.items():
        value = (body.model_extra or {}).get(name)
        if value is not None and value not in neutral:
            raise HttpRefusal(400, "unsupported_parameter", f"{name} is not served: leave it out.", name)
