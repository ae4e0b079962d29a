"""Input items of ``/v1/responses``, and their conversion to chat messages.

Source: openai-python ``types/responses/response_input_item_param``; audio is ``response_input_audio_param``. Of
OpenAI's hosted tools, only those of MCP servers are supported.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Discriminator, Field, Tag

from app.http.messages import (
    AssistantMessage,
    AudioContent,
    AudioData,
    ChatMessage,
    ChatToolCall,
    FunctionCall,
    ImageContent,
    ImageUrl,
    Parts,
    RefusalContent,
    SystemMessage,
    TextContent,
    ToolMessage,
    UserMessage,
)


class AnyText(BaseModel):
    type: Literal["input_text", "output_text"]
    text: str

    def part(self) -> TextContent:
        return TextContent(type="text", text=self.text)


class InputImage(BaseModel):
    type: Literal["input_image"]
    image_url: str = Field(description="A data URI of a PNG or JPEG. URLs and file ids are not supported.")

    def part(self) -> ImageContent:
        return ImageContent(type="image_url", image_url=ImageUrl(url=self.image_url))


class InputAudio(BaseModel):
    type: Literal["input_audio"]
    input_audio: AudioData

    def part(self) -> AudioContent:
        return AudioContent(type="input_audio", input_audio=self.input_audio)


class OutputRefusal(BaseModel):
    type: Literal["refusal"]
    refusal: str

    def part(self) -> RefusalContent:
        return RefusalContent(type="refusal", refusal=self.refusal)


UserPart = Annotated[AnyText | InputImage | InputAudio, Field(discriminator="type")]
AssistantPart = Annotated[AnyText | OutputRefusal, Field(discriminator="type")]


class InstructionItem(BaseModel):
    type: Literal["message"] = "message"
    role: Literal["system", "developer"]
    content: str | Annotated[list[AnyText], Parts]

    def message(self) -> ChatMessage:
        return SystemMessage(role=self.role, content=_texts(self.content))


class UserItem(BaseModel):
    type: Literal["message"] = "message"
    role: Literal["user"]
    content: str | Annotated[list[UserPart], Parts]

    def message(self) -> ChatMessage:
        said = self.content
        return UserMessage(role="user", content=said if isinstance(said, str) else [part.part() for part in said])


class AssistantItem(BaseModel):
    type: Literal["message"] = "message"
    role: Literal["assistant"]
    content: str | Annotated[list[AssistantPart], Parts]

    def message(self) -> ChatMessage:
        said = self.content
        parts = said if isinstance(said, str) else [part.part() for part in said]
        return AssistantMessage(role="assistant", content=parts)


class FunctionCallInput(BaseModel):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str

    def message(self) -> ChatMessage:
        call = ChatToolCall(id=self.call_id, function=FunctionCall(name=self.name, arguments=self.arguments))
        return AssistantMessage(role="assistant", tool_calls=[call])


class FunctionCallOutputInput(BaseModel):
    type: Literal["function_call_output"]
    call_id: str
    output: str | Annotated[list[AnyText], Parts]

    def message(self) -> ChatMessage:
        return ToolMessage(role="tool", tool_call_id=self.call_id, content=_texts(self.output))


class McpToolList(BaseModel):
    """An MCP server's tools as an earlier response listed them. Ignored: they are listed again."""

    type: Literal["mcp_list_tools"]


class McpCallItem(BaseModel):
    """A call of an MCP tool that ran for an earlier response."""

    type: Literal["mcp_call"]
    id: str
    name: str
    arguments: str
    output: str | None = None
    error: Any = None
    approval_request_id: str | None = None

    def messages(self) -> list[ChatMessage]:
        text = self.output or "" if self.error is None else f"Error: {str(self.error)[:2000]}"
        return _called(self.id, self.name, self.arguments, text)


class McpApprovalRequest(BaseModel):
    """A call of an MCP tool that waits for the client's approval."""

    type: Literal["mcp_approval_request"]
    id: str
    server_label: str
    name: str
    arguments: str

    def denied(self, reason: str | None) -> list[ChatMessage]:
        """Return messages with the call and the information that it was not approved."""
        why = f": {reason}" if reason else "."
        return _called(self.id, self.name, self.arguments, f"The user did not approve this call{why}")


class McpApprovalResponse(BaseModel):
    """The client's reply to an approval request."""

    type: Literal["mcp_approval_response"]
    approval_request_id: str
    approve: bool
    reason: str | None = None


def _called(id: str, name: str, arguments: str, output: str) -> list[ChatMessage]:
    call = ChatToolCall(id=id, function=FunctionCall(name=name, arguments=arguments))
    return [
        AssistantMessage(role="assistant", tool_calls=[call]),
        ToolMessage(role="tool", tool_call_id=id, content=output),
    ]


class ReasoningItem(BaseModel):
    """Reasoning of another model, which clients send back. It is ignored."""

    type: Literal["reasoning"]


class KeptItemReference(BaseModel):
    """A reference to an item of a stored response."""

    type: Literal["item_reference"] | None = "item_reference"
    id: str


def _texts(content: str | list[AnyText]) -> str | list[TextContent]:
    return content if isinstance(content, str) else [part.part() for part in content]


def type_or_role(item: Any) -> str | None:
    """Return the tag that tells an item's type.

    The type may be omitted: a message has a role, and a reference only an id.
    """
    if not isinstance(item, dict):
        return None
    fields = cast("dict[str, Any]", item)
    type = fields.get("type") or ("message" if "role" in fields or "id" not in fields else "item_reference")
    kind = fields.get("role") if type == "message" else type
    return kind if isinstance(kind, str) else None


InputItem = Annotated[
    Annotated[InstructionItem, Tag("system")]
    | Annotated[InstructionItem, Tag("developer")]
    | Annotated[UserItem, Tag("user")]
    | Annotated[AssistantItem, Tag("assistant")]
    | Annotated[FunctionCallInput, Tag("function_call")]
    | Annotated[FunctionCallOutputInput, Tag("function_call_output")]
    | Annotated[McpToolList, Tag("mcp_list_tools")]
    | Annotated[McpCallItem, Tag("mcp_call")]
    | Annotated[McpApprovalRequest, Tag("mcp_approval_request")]
    | Annotated[McpApprovalResponse, Tag("mcp_approval_response")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[KeptItemReference, Tag("item_reference")],
    Discriminator(type_or_role),
]
