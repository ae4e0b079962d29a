"""``/v1/responses``: one answer to a conversation, in the successor of the chat completions API.

A response is stored for its key (``app.responses.store``), and the next request continues it with
``previous_response_id``. Source: openai-python ``resources/responses`` and ``types/responses``.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from app.access.auth import caller_of
from app.http.answer_format import JsonObject, PlainText, ResponseFormat, ResponseSchema, checked_format
from app.http.body import Responses, StrictRoute
from app.http.hosted_answer import Approved, HostedToolAccess
from app.http.input_items import (
    InputItem,
    KeptItemReference,
    McpApprovalRequest,
    McpApprovalResponse,
    McpCallItem,
    McpToolList,
    ReasoningItem,
    UserItem,
)
from app.http.messages import ChatMessage
from app.http.names import names_of_model
from app.http.question import (
    EngineCall,
    History,
    Question,
    SamplingFields,
    Tokens,
    answered_live,
    answered_whole,
    refuse_unserved,
    with_transcript,
)
from app.http.response_teller import ResponseTeller
from app.http.response_tools import (
    AllowedTools,
    AnyTool,
    ChosenFunction,
    FunctionTool,
    McpTool,
    ToolChoice,
    UnservedTool,
)
from app.http_errors import RESPONSES, HttpRefusal
from app.ids import elsewhere, new_id
from app.limits.held_size import held_size
from app.mcp import MOST_CALLS, MOST_SERVERS
from app.responses.events import GrowingResponse
from app.responses.store import KeptResponse, ResponseStore, Turn
from app.service import Service

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "background": (False,),
    "conversation": (),
    "prompt": (),
    "moderation": (),
    "top_logprobs": (0,),
}
"""Unsupported fields that would change the answer. None and the values here mean the same as omitting the field.

Other unsupported fields are ignored, since they don't change the answer's meaning.
"""

_SPOKEN = {"modalities": (["text"],), "audio": ()}
_LOGPROBS = "message.output_text.logprobs"
_ITEM: TypeAdapter[InputItem] = TypeAdapter(InputItem)


class TextConfig(BaseModel):
    format: ResponseFormat | None = None


Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]


class ResponseRequest(SamplingFields):
    """One request for a response.

    Unknown fields are refused if they would change the answer, and ignored otherwise.
    """

    model_config = ConfigDict(extra="allow")

    model: str
    input: str | Annotated[list[InputItem], Field(max_length=2000, fail_fast=True)] | None = None
    instructions: str | None = Field(default=None, description="For this answer only; not stored.")
    previous_response_id: str | None = Field(
        default=None, max_length=200, description="The response to continue. It must still be stored."
    )
    store: bool | None = Field(default=True, description="Whether to store the response, within the server's limits.")
    stream: bool | None = False
    max_output_tokens: Tokens | None = None
    tools: list[AnyTool] | None = Field(default=None, max_length=128, fail_fast=True)
    max_tool_calls: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Maximum number of MCP tool calls; the server has a limit too."
    )
    tool_choice: ToolChoice | None = None
    text: TextConfig | None = None
    include: list[Annotated[str, Field(max_length=100)]] | None = Field(default=None, max_length=32, fail_fast=True)
    metadata: Metadata | None = None

    @property
    def items(self) -> list[InputItem]:
        if isinstance(self.input, str):
            return [UserItem(role="user", content=self.input)]
        return self.input or []

    @property
    def format(self) -> PlainText | JsonObject | ResponseSchema:
        given = self.text.format if self.text is not None else None
        return given or PlainText(type="text")

    @property
    def functions(self) -> list[FunctionTool]:
        return [tool for tool in self.tools or () if isinstance(tool, FunctionTool)]

    def offered(self) -> list[FunctionTool]:
        """Return the functions that may be called. Raises HttpRefusal if an allowed one is not in tools."""
        if not isinstance(self.tool_choice, AllowedTools):
            return self.functions
        names = {tool.name for tool in self.functions}
        for i, one in enumerate(self.tool_choice.tools):
            if one.name not in names:
                message = f"tool_choice allows {one.name!r}, which is not in tools."
                raise HttpRefusal(400, "invalid_value", message, f"tool_choice.tools.{i}.name")
        allowed = {one.name for one in self.tool_choice.tools}
        return [tool for tool in self.functions if tool.name in allowed]

    def chosen(self) -> str:
        """Return ``auto``, ``none``, ``required``, or the name of the function to call."""
        match self.tool_choice:
            case ChosenFunction(name=name):
                return name
            case AllowedTools(mode=mode):
                return mode
            case choice:
                return choice or "auto"


def responses(service: Service) -> APIRouter:
    """Return the routes of one server."""
    router = APIRouter(route_class=StrictRoute, tags=["Responses"], responses=RESPONSES)
    media: Responses = {200: {"content": {"application/json": {}, "text/event-stream": {}}}}

    @router.post("/v1/responses", summary="Create a response, as text", responses=media, response_model=None)
    async def create(request: Request, body: ResponseRequest) -> Response:  # pyright: ignore[reportUnusedFunction]
        _check(body)
        owner, kept = caller_of(request.scope).owner, service.kept
        previous = _previous(kept, owner, body.previous_response_id)
        hosted = _hosted(service, owner, body)
        question = _question(service, body, _messages(kept, owner, body.items), previous, hosted)
        keep = partial(_keep, kept, owner, question, previous) if body.store is not False else None
        teller = partial(ResponseTeller, _head(body, question, hosted), keep)
        run = hosted.answer if hosted is not None else None
        if body.stream:
            return await answered_live(service, request, question, teller, run)
        return await answered_whole(service, request, question, teller, run)

    @router.get("/v1/responses/{id}", summary="Get a stored response", response_model=None)
    async def retrieve(request: Request, id: str, stream: bool = False) -> Response:  # pyright: ignore[reportUnusedFunction]
        if stream:
            message = "A stored response can't be streamed: leave stream out."
            raise HttpRefusal(400, "unsupported_parameter", message, "stream")
        found = service.kept.find(caller_of(request.scope).owner, id)
        if found is None:
            raise _not_found(service.kept, id)
        return JSONResponse(found.body)

    @router.delete("/v1/responses/{id}", summary="Delete a stored response", response_model=None)
    async def delete(request: Request, id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        if not service.kept.forget(caller_of(request.scope).owner, id):
            raise _not_found(service.kept, id)
        return JSONResponse({"id": id, "object": "response", "deleted": True})

    return router


def _not_found(kept: ResponseStore, id: str) -> HttpRefusal:
    message = f"Response with id {id[:100]!r} not found.{elsewhere(id, kept.server)}"
    return HttpRefusal(404, "response_not_found", message, "response_id")


def _check(body: ResponseRequest) -> None:
    """Raise HttpRefusal for unsupported parameters."""
    refuse_unserved(body.model_extra, _NEUTRAL)
    refuse_unserved(body.model_extra, _SPOKEN, "responses are text only, use /v1/chat/completions for speech")
    if _LOGPROBS in (body.include or ()):
        message = f"include: {_LOGPROBS!r} is not supported: leave it out."
        raise HttpRefusal(400, "unsupported_parameter", message, "include")
    for i, tool in enumerate(body.tools or ()):
        if isinstance(tool, FunctionTool):
            tool.check(f"tools.{i}.parameters")
    tools = enumerate(body.tools or ())
    kinds = {f"tools.{i}.type": tool.type for i, tool in tools if isinstance(tool, UnservedTool)}
    if isinstance(body.tool_choice, ChosenFunction):
        kinds["tool_choice.type"] = body.tool_choice.type
    if kinds.get("tool_choice.type") == "mcp":
        message = "tool_choice can't name MCP tools: use allowed_tools of the server's entry in tools."
        raise HttpRefusal(400, "unsupported_value", message, "tool_choice.type")
    if isinstance(body.tool_choice, AllowedTools) and len(body.functions) < len(body.tools or ()):
        message = "tool_choice can allow functions only: for MCP tools, use allowed_tools of the server's entry."
        raise HttpRefusal(400, "unsupported_value", message, "tool_choice")
    for path, kind in kinds.items():
        if kind != "function":
            message = f"{path}: {kind[:40]!r} is not supported: use 'function' or 'mcp'."
            raise HttpRefusal(400, "unsupported_value", message, path)


def _previous(kept: ResponseStore, owner: str, id: str | None) -> KeptResponse | None:
    """Return the response to continue. Raises HttpRefusal (400, as OpenAI does) if it is not stored."""
    if id is None:
        return None
    if (found := kept.find(owner, id)) is None:
        message = f"Previous response with id {id!r} not found.{elsewhere(id, kept.server)}"
        raise HttpRefusal(400, "previous_response_not_found", message, "previous_response_id")
    return found


def _messages(kept: ResponseStore, owner: str, items: list[InputItem]) -> list[ChatMessage]:
    """Convert the input items to messages. Raises HttpRefusal."""
    messages: list[ChatMessage] = []
    for i, item in enumerate(items):
        if isinstance(item, KeptItemReference):
            if (known := kept.item(owner, item.id)) is None:
                message = (
                    f"Item with id {item.id[:100]!r} not found. "
                    "Only items of responses stored on this server can be referenced."
                )
                raise HttpRefusal(404, "item_not_found", message, f"input.{i}.id")
            item = _ITEM.validate_python(known)
        match item:
            case McpApprovalResponse():
                request = _request_of(kept, owner, items, item, f"input.{i}")
                messages += [] if item.approve else request.denied(item.reason)
            case McpCallItem():
                messages += item.messages()
            case KeptItemReference() | ReasoningItem() | McpToolList() | McpApprovalRequest():
                pass
            case _:
                messages.append(item.message())
    return messages


def _request_of(
    kept: ResponseStore, owner: str, items: list[InputItem], response: McpApprovalResponse, path: str
) -> McpApprovalRequest:
    """Return the request that an approval answers, from the input or a stored response. Raises HttpRefusal."""
    id = response.approval_request_id
    for item in items:
        if isinstance(item, McpApprovalRequest) and item.id == id:
            return item
    known = kept.item(owner, id)
    if known is None or known["type"] != "mcp_approval_request":
        message = f"Unknown approval request {id[:100]!r}: it is neither in the input nor in a stored response."
        raise HttpRefusal(400, "invalid_value", message, f"{path}.approval_request_id")
    return McpApprovalRequest.model_validate(known)


def _hosted(service: Service, owner: str, body: ResponseRequest) -> HostedToolAccess | None:
    """Return the MCP servers and approved calls of this response, or None. Raises HttpRefusal, Refusal."""
    tools = ((i, tool) for i, tool in enumerate(body.tools or ()) if isinstance(tool, McpTool))
    servers = tuple(service.tool_servers.read(tool.model_dump(), f"tools.{i}") for i, tool in tools)
    labels = [server.entry.server_label for server in servers]
    if len(set(labels)) < len(labels):
        raise HttpRefusal(
            400, "invalid_value", "Two MCP servers have the same server_label; give each its own.", "tools"
        )
    if len(servers) > MOST_SERVERS:
        raise HttpRefusal(400, "invalid_value", f"A response can use at most {MOST_SERVERS} MCP servers.", "tools")
    ran = {item.approval_request_id for item in body.items if isinstance(item, McpCallItem)}
    answers = [(i, item) for i, item in enumerate(body.items) if isinstance(item, McpApprovalResponse) and item.approve]
    approvals: list[Approved] = []
    for i, item in answers:
        if item.approval_request_id in ran:
            continue  # the approved call has run already: a client that sends the whole history sends the approval too
        asked = _request_of(service.kept, owner, body.items, item, f"input.{i}")
        approvals.append(Approved(asked.id, asked.server_label, asked.name, asked.arguments))
    if not servers and not approvals:
        return None
    return HostedToolAccess(servers, tuple(approvals), min(body.max_tool_calls or MOST_CALLS, MOST_CALLS))


def _question(
    service: Service,
    body: ResponseRequest,
    messages: list[ChatMessage],
    previous: KeptResponse | None,
    hosted: HostedToolAccess | None,
) -> Question:
    """Convert the request body. Raises HttpRefusal."""
    before, most = History(), service.settings.limits.items
    if previous is not None:
        turn = previous.turn
        if turn.count + len(messages) > most:
            message = f"The conversation has {turn.count} messages (the limit is {most}): start a new one."
            raise HttpRefusal(400, "invalid_value", message, "previous_response_id")
        before = History(turn.conversation(), turn.chars, turn.media_bytes, previous.session)
    elif not messages and not body.instructions:
        raise HttpRefusal(400, "missing_required_parameter", "input is missing.", "input")
    return Question(
        id=new_id("resp", service.kept.server),
        path="input",
        names=names_of_model(service, body.model),
        messages=messages,
        sampling=body.sampling(),
        tools=tuple(tool.tool() for tool in body.offered()),
        tool_choice=body.chosen(),
        most_tokens=body.max_output_tokens,
        format=checked_format(body.format, "text.format"),
        format_field="text.format",
        instructions=body.instructions or "",
        before=before,
        hosted=hosted is not None,
    )


def _keep(
    kept: ResponseStore,
    owner: str,
    question: Question,
    previous: KeptResponse | None,
    asked: EngineCall,
    growing: GrowingResponse,
) -> None:
    """Store a response with the conversation turn that it ends."""
    body, new = growing.body(), with_transcript(asked.new, growing.transcript)
    turn = Turn((*new, *growing.messages()), previous.turn if previous is not None else None)
    kept.keep(owner, KeptResponse(body, held_size(body), turn, question.before.session))


def _head(body: ResponseRequest, question: Question, hosted: HostedToolAccess | None) -> dict[str, Any]:
    """Return the response's fields that are known at the start."""
    choice, servers = body.tool_choice, iter(hosted.servers if hosted is not None else ())
    tools = [
        tool.model_dump() if isinstance(tool, FunctionTool) else next(servers).entry.shown for tool in body.tools or ()
    ]
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
        "text": {"format": body.format.model_dump(by_alias=True)},
        "tool_choice": choice.model_dump() if isinstance(choice, BaseModel) else choice or "auto",
        "tools": tools,
        "top_p": body.top_p,
        "truncation": "disabled",
        "usage": None,
    }
