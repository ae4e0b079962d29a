"""``POST /v1/chat/completions``: one answer to a conversation, as text or speech, complete or streamed.

Source: openai-python ``types/chat``; a streamed answer consists of ``chat.completion.chunk`` objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from app.http.answer_format import ChatFormat, checked_format
from app.http.body import Responses, StrictRoute
from app.http.completion import StreamedCompletion, WholeCompletion
from app.http.live import Write
from app.http.messages import ChatMessage
from app.http.names import AnyVoice, Names, names_of_model, names_of_voice
from app.http.question import (
    EngineCall,
    FunctionSpec,
    Question,
    SamplingFields,
    Tokens,
    answered_live,
    answered_whole,
    refuse_unserved,
)
from app.http.sound import Format
from app.http_errors import RESPONSES, HttpRefusal
from app.ids import new_id
from app.service import Service

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
}
"""Unsupported fields that would change the answer. None and the values here mean the same as omitting the field.

Other unsupported fields are ignored, since they don't change the answer's meaning.
"""


class AudioParams(BaseModel):
    voice: AnyVoice = None
    format: Format | None = Field(default=None, description="Default: pcm16 for a stream, wav for a complete answer.")


class ToolSpec(BaseModel):
    type: Literal["function"] = "function"
    function: FunctionSpec


class ChatChosenFunction(BaseModel):
    name: str


class ToolChoice(BaseModel):
    type: Literal["function"] = "function"
    function: ChatChosenFunction


class StreamOptions(BaseModel):
    include_usage: bool = False


StopString = Annotated[str, Field(min_length=1, max_length=500)]


class ChatRequest(SamplingFields):
    """One request for a completion.

    Unknown fields are refused if they would change the answer, and ignored otherwise.
    """

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
    response_format: ChatFormat | None = Field(
        default=None, description="The JSON that a text answer must be: any object, or a value of a JSON schema."
    )
    stop: StopString | Annotated[list[StopString], Field(max_length=4, fail_fast=True)] | None = Field(
        default=None, description="The text ends before the first of these strings, the audio after a complete word."
    )

    @property
    def speaks(self) -> bool:
        return "audio" in (self.modalities or ())

    @property
    def sound(self) -> AudioParams:
        return self.audio or AudioParams()

    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def chosen(self) -> str:
        """Return ``auto``, ``none``, ``required``, or the name of the function to call."""
        choice = self.tool_choice
        return choice.function.name if isinstance(choice, ToolChoice) else choice or "auto"


def chat(service: Service) -> APIRouter:
    """Return the route of one server."""
    router = APIRouter(route_class=StrictRoute, tags=["Chat"], responses=RESPONSES)
    media: Responses = {200: {"content": {"application/json": {}, "text/event-stream": {}}}}

    @router.post("/v1/chat/completions", summary="Create a chat completion", responses=media, response_model=None)
    async def complete(request: Request, body: ChatRequest) -> Response:  # pyright: ignore[reportUnusedFunction]
        refuse_unserved(body.model_extra, _NEUTRAL)
        question = _question(service, body)
        if body.stream:
            return await answered_live(service, request, question, _streamed(question, body))
        whole = WholeCompletion(question.id, question.names.model, _format(body, "wav"))
        return await answered_whole(service, request, question, lambda asked: whole)

    return router


def _question(service: Service, body: ChatRequest) -> Question:
    """Convert the request body to a ``Question``. Raises HttpRefusal if its model, voice or format cannot be served."""
    if body.speaks and body.response_format is not None and body.response_format.type != "text":
        message = "response_format: a spoken answer is text. Request JSON with modalities ['text']."
        raise HttpRefusal(400, "unsupported_value", message, "response_format")
    for i, tool in enumerate(body.tools or ()):
        tool.function.check(f"tools.{i}.function.parameters")
    return Question(
        id=new_id("chatcmpl"),
        path="messages",
        names=_names(service, body),
        messages=body.messages,
        sampling=body.sampling(),
        tools=tuple(tool.function.tool() for tool in body.tools or ()),
        tool_choice=body.chosen(),
        most_tokens=body.max_completion_tokens or body.max_tokens,
        speaks=body.speaks,
        stop=body.stops(),
        format=checked_format(body.response_format, "response_format"),
    )


def _streamed(question: Question, body: ChatRequest) -> Callable[[EngineCall, Write], StreamedCompletion]:
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    id, model, format = question.id, question.names.model, _format(body, "pcm16")
    return lambda asked, write: StreamedCompletion(write, id, model, with_usage, format)


def _format(body: ChatRequest, otherwise: Format) -> Format | None:
    """Return the answer's audio format, or None for a text answer."""
    return body.sound.format or otherwise if body.speaks else None


def _names(service: Service, body: ChatRequest) -> Names:
    """Return the model and voice that serve the request.

    Raises HttpRefusal if the model cannot speak, and in strict mode for an unknown name.
    """
    if not body.speaks:
        return names_of_model(service, body.model)
    return names_of_voice(service, body.model, body.sound.voice, "audio.voice")
