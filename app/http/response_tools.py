"""The tools of a request to ``/v1/responses``, and its ``tool_choice``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from app.http.question import FunctionSpec


class FunctionTool(FunctionSpec):
    type: Literal["function"] = Field(description="A function that the client runs.")


class McpTool(BaseModel):
    """An MCP server from ``server.mcp`` in the configuration: this server lists its tools and calls them."""

    model_config = ConfigDict(extra="allow")

    type: Literal["mcp"]


class UnservedTool(BaseModel):
    """A tool of another type, such as OpenAI's web search. It is refused by name."""

    type: str


def _kind(tool: Any) -> str:
    type = cast("dict[str, Any]", tool).get("type", "function") if isinstance(tool, dict) else "function"
    return type if type in ("mcp", "function") else "unserved"


AnyTool = Annotated[
    Annotated[FunctionTool, Tag("function")]
    | Annotated[McpTool, Tag("mcp")]
    | Annotated[UnservedTool, Tag("unserved")],
    Discriminator(_kind),
]


class ChosenFunction(BaseModel):
    type: str
    name: str = ""


class AllowedFunction(BaseModel):
    type: Literal["function"]
    name: str = Field(max_length=100)


class AllowedTools(BaseModel):
    """A subset of the tools for this answer only. A client that always sends the same tools keeps the prompt cached."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[list[AllowedFunction], Field(min_length=1, max_length=128, fail_fast=True)]


def _choice_kind(choice: Any) -> str:
    if not isinstance(choice, dict):
        return "word"
    return "allowed_tools" if cast("dict[str, Any]", choice).get("type") == "allowed_tools" else "function"


ToolChoice = Annotated[
    Annotated[Literal["auto", "none", "required"], Tag("word")]
    | Annotated[AllowedTools, Tag("allowed_tools")]
    | Annotated[ChosenFunction, Tag("function")],
    Discriminator(_choice_kind),
]
