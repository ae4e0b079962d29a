"""``/v1/responses``: one answer to a conversation, in the API that has followed chat completions.

An answer is kept for its key (``app.kept``), and the next request goes on from it by ``previous_response_id``. Source:
openai-python ``resources/responses`` and ``types/responses``. Knows no tensor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from app.auth import caller_of
from app.http.answering import Figures
from app.http.body import Responses, StrictRoute
from app.http.input_items import InputItem, ItemReference, ReasoningItem, UserItem
from app.http.live import Write
from app.http.messages import ChatMessage, chars_of
from app.http.names import names_of_model
from app.http.question import (
    Asked,
    Before,
    Drawn,
    FunctionSpec,
    Question,
    Tokens,
    answered_live,
    answered_whole,
    refuse_unserved,
)
from app.http.response_events import Event, GrowingResponse
from app.http.trouble import RESPONSES, HttpRefusal
from app.ids import new_id
from app.kept import Kept, KeptResponse, Turn
from app.service import Service
from engine import AudioPart, Message, Output

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "conversation": (),
    "prompt": (),
    "moderation": (),
    "top_logprobs": (0,),
}
"""Fields that would change the answer, and are not served: None or these values mean the same as leaving them out.
Other fields that are not served change nothing in the meaning of an answer, and are ignored."""

_SPOKEN = {"modalities": (["text"],), "audio": ()}
_LOGPROBS = "message.output_text.logprobs"
_ITEM: TypeAdapter[InputItem] = TypeAdapter(InputItem)


class FunctionTool(FunctionSpec):
    type: str = Field(description="'function': the client runs it. Tools that the server would run are not served.")
    strict: bool | None = None


class ChosenFunction(BaseModel):
    type: str
    name: str = ""


class TextFormat(BaseModel):
    type: str = "text"


class TextConfig(BaseModel):
    format: TextFormat | None = None


Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]


class ResponseRequest(Drawn):
    """One request for a response. Other fields are refused if they would change the answer, like conversation, else
    ignored."""

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | Annotated[list[InputItem], Field(max_length=2000, fail_fast=True)] | None = None
    instructions: str | None = Field(default=None, description="For this answer alone: they are not kept.")
    previous_response_id: str | None = Field(
        default=None, max_length=200, description="The response that this one goes on from, if it is still kept."
    )
    store: bool | None = Field(default=True, description="Whether it is kept, within the server's limits.")
    stream: bool | None = False
    max_output_tokens: Tokens | None = None
    tools: list[FunctionTool] | None = Field(default=None, max_length=128, fail_fast=True)
    tool_choice: Literal["auto", "none", "required"] | ChosenFunction | None = None
    text: TextConfig | None = None
    include: list[Annotated[str, Field(max_length=100)]] | None = Field(default=None, max_length=32, fail_fast=True)
    metadata: Metadata | None = None

    @property
    def items(self) -> list[InputItem]:
        if isinstance(self.input, str):
            return [UserItem(role="user", content=self.input)]
        return self.input or []

    def chosen(self) -> str:
        """``auto``, ``none``, ``required``, or the name of the one function to call."""
        choice = self.tool_choice
        return choice.name if isinstance(choice, ChosenFunction) else choice or "auto"


def responses(service: Service) -> APIRouter:
    """The routes, for one server."""
    router = APIRouter(route_class=StrictRoute, tags=["Responses"], responses=RESPONSES)
    media: Responses = {200: {"content": {"application/json": {}, "text/event-stream": {}}}}

    @router.post("/v1/responses", summary="Answer a conversation", responses=media, response_model=None)
    async def create(request: Request, body: ResponseRequest) -> Response:  # pyright: ignore[reportUnusedFunction]
        _check(body)
        owner, kept = caller_of(request.scope).owner, service.kept
        previous = _previous(kept, owner, body.previous_response_id)
        question = _question(service, body, _messages(kept, owner, body.items), previous)
        keep = partial(_keep, kept, owner, question, previous) if body.store is not False else None
        teller = partial(_Teller, _head(body, question), keep)
        if body.stream:
            return await answered_live(service, request, question, teller)
        return await answered_whole(service, request, question, teller)

    @router.get("/v1/responses/{id}", summary="A response that is kept", response_model=None)
    async def retrieve(request: Request, id: str, stream: bool = False) -> Response:  # pyright: ignore[reportUnusedFunction]
        if stream:
            message = "A response is streamed while it is made; one that is kept comes whole: leave stream out."
            raise HttpRefusal(400, "unsupported_parameter", message, "stream")
        found = service.kept.find(caller_of(request.scope).owner, id)
        if found is None:
            raise _not_found(id)
        return JSONResponse(found.body)

    @router.delete("/v1/responses/{id}", summary="Keep a response no longer", response_model=None)
    async def delete(request: Request, id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        if not service.kept.forget(caller_of(request.scope).owner, id):
            raise _not_found(id)
        return JSONResponse({"id": id, "object": "response", "deleted": True})

    return router


def _not_found(id: str) -> HttpRefusal:
    return HttpRefusal(404, "response_not_found", f"Response with id {id[:100]!r} not found.", "response_id")


def _check(body: ResponseRequest) -> None:
    """Raises HttpRefusal for what is not served."""
    refuse_unserved(body.model_extra, _NEUTRAL)
    refuse_unserved(body.model_extra, _SPOKEN, "a response is text, and /v1/chat/completions answers aloud")
    format = body.text.format.type if body.text is not None and body.text.format is not None else "text"
    refuse_unserved({"text.format": format}, {"text.format": ("text",)})
    if _LOGPROBS in (body.include or ()):
        raise HttpRefusal(
            400, "unsupported_parameter", f"include: {_LOGPROBS!r} is not served: leave it out.", "include"
        )
    kinds = {f"tools.{i}.type": tool.type for i, tool in enumerate(body.tools or ())}
    if isinstance(body.tool_choice, ChosenFunction):
        kinds["tool_choice.type"] = body.tool_choice.type
    for path, kind in kinds.items():
        if kind != "function":
            message = f"{path}: {kind[:40]!r} is not served here: only functions, which the client runs, are."
            raise HttpRefusal(400, "unsupported_value", message, path)


def _previous(kept: Kept, owner: str, id: str | None) -> KeptResponse | None:
    """The response to go on from. Raises HttpRefusal, as the hosted service does (400), where it is not kept."""
    if id is None:
        return None
    if (found := kept.find(owner, id)) is None:
        message = f"Previous response with id {id!r} not found."
        raise HttpRefusal(400, "previous_response_not_found", message, "previous_response_id")
    return found


def _messages(kept: Kept, owner: str, items: list[InputItem]) -> list[ChatMessage]:
    """Raises HttpRefusal."""
    messages: list[ChatMessage] = []
    for i, item in enumerate(items):
        if isinstance(item, ItemReference):
            if (known := kept.item(owner, item.id)) is None:
                message = (
                    f"Item with id {item.id[:100]!r} not found. Only the items of kept answers can be referred to."
                )
                raise HttpRefusal(404, "item_not_found", message, f"input.{i}.id")
            item = _ITEM.validate_python(known)
        if not isinstance(item, ItemReference | ReasoningItem):
            messages.append(item.message())
    return messages


def _question(
    service: Service, body: ResponseRequest, messages: list[ChatMessage], previous: KeptResponse | None
) -> Question:
    """Raises HttpRefusal."""
    turn = previous.turn if previous is not None else None
    most = service.settings.limits.items
    if turn is not None and turn.count + len(messages) > most:
        message = f"The conversation has {turn.count} messages, of at most {most}: begin a new one."
        raise HttpRefusal(400, "invalid_value", message, "previous_response_id")
    if not messages and turn is None and not body.instructions:
        raise HttpRefusal(400, "missing_required_parameter", "input is missing.", "input")
    before = Before()
    if previous is not None and turn is not None:
        before = Before(turn.conversation(), turn.chars, turn.media_bytes, previous.session)
    return Question(
        id=new_id("resp"),
        path="input",
        names=names_of_model(service, body.model),
        messages=messages,
        sampling=body.sampling(),
        tools=tuple(tool.tool() for tool in body.tools or ()),
        tool_choice=body.chosen(),
        most_tokens=body.max_output_tokens,
        instructions=body.instructions or "",
        before=before,
    )


Keep = Callable[[Asked, GrowingResponse], None]


class _Teller:
    """One answer, told as events where there is a ``write``; kept, where there is a ``keep``, before its last event."""

    def __init__(self, head: dict[str, Any], keep: Keep | None, asked: Asked, write: Write | None = None) -> None:
        self._growing, self._keep, self._asked, self._write = GrowingResponse(head), keep, asked, write

    @property
    def begun(self) -> bool:
        return self._growing.begun

    async def take(self, chunk: Output) -> None:
        await self._emit(self._growing.take(chunk))

    async def end(self, figures: Figures) -> None:
        events = self._growing.end(figures)
        if self._keep is not None:
            self._keep(self._asked, self._growing)
        await self._emit(events)

    async def fail(self, refusal: HttpRefusal) -> None:
        await self._emit(self._growing.fail(refusal))

    async def body(self, figures: Figures) -> dict[str, Any]:
        await self.end(figures)
        return self._growing.body()

    async def _emit(self, events: list[Event]) -> None:
        if self._write is not None:
            for event in events:
                head = f"event: {event['type']}\ndata: ".encode()
                await self._write(head + orjson.dumps(event) + b"\n\n")


def _keep(
    kept: Kept, owner: str, question: Question, previous: KeptResponse | None, asked: Asked, growing: GrowingResponse
) -> None:
    """Keep an answer, and the turn that it makes with its question."""
    body, answer, new = growing.body(), growing.message(), _with_transcript(asked.new, growing.transcript)
    chars = question.before.chars + sum(map(chars_of, question.messages)) + len(orjson.dumps(body["output"]))
    turn = Turn((*new, answer) if answer.parts else new, previous.turn if previous is not None else None, chars)
    kept.keep(owner, KeptResponse(body, len(orjson.dumps(body)), turn, question.before.session))


def _with_transcript(messages: tuple[Message, ...], transcript: str | None) -> tuple[Message, ...]:
    """The messages, with the words that were heard in the last one: the next answer need not hear them again."""
    if transcript is None or not messages:
        return messages
    *earlier, last = messages
    spoken = [i for i, part in enumerate(last.parts) if isinstance(part, AudioPart)]
    parts = tuple(
        AudioPart(part.pcm, transcript if i == spoken[0] else "") if isinstance(part, AudioPart) else part
        for i, part in enumerate(last.parts)
    )
    return (*earlier, Message(last.role, parts))


def _head(body: ResponseRequest, question: Question) -> dict[str, Any]:
    """The fields of the object that are known from the beginning."""
    choice = body.tool_choice
    return {
        "id": question.id,
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": question.names.model,
        "parallel_tool_calls": True,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": None, "summary": None},
        "temperature": body.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": choice.model_dump() if isinstance(choice, ChosenFunction) else choice or "auto",
        "tools": [tool.model_dump() for tool in body.tools or ()],
        "top_p": body.top_p,
        "truncation": "disabled",
        "usage": None,
    }
