"""The JSON format of an answer: ``response_format`` of chat completions, and ``text.format`` of responses.

Source: openai-python ``types/shared_params``, ``types/responses/response_format_text_json_schema_config_param.py``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field

from app.http.strict_schema import CODE, check_strict
from app.http_errors import HttpRefusal
from app.realtime.conversation.model_context import json_size
from engine import JsonFormat

MOST_BYTES = 128 * 1024
"""Maximum size of a schema as JSON."""


class NamedSchema(BaseModel):
    """A JSON schema with its name."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = Field(default=None, max_length=10_000)
    schema_: dict[str, Any] = Field(alias="schema", description="The JSON schema of the answer.")
    strict: bool | None = Field(default=None, description="Whether the rules of strict mode are checked.")

    def checked(self, param: str) -> JsonFormat:
        """Return the engine's format. ``param`` is the path of the schema. Raises HttpRefusal."""
        size = json_size(self.schema_)
        if size > MOST_BYTES:
            message = f"The schema has {size // 1024} kB (the limit is {MOST_BYTES // 1024} kB): shorten it."
            raise HttpRefusal(400, CODE, message, param)
        if self.strict:
            check_strict(self.schema_, f"response_format {self.name!r}", param)
        return JsonFormat(schema=self.schema_, name=self.name, description=self.description or "", strict=self.strict)


class PlainText(BaseModel):
    type: Literal["text"]


class JsonObject(BaseModel):
    """Any JSON object."""

    type: Literal["json_object"]


class ChatSchema(BaseModel):
    type: Literal["json_schema"]
    json_schema: NamedSchema


class ResponseSchema(NamedSchema):
    type: Literal["json_schema"]


ChatFormat = Annotated[PlainText | JsonObject | ChatSchema, Discriminator("type")]
ResponseFormat = Annotated[PlainText | JsonObject | ResponseSchema, Discriminator("type")]


def checked_format(asked: PlainText | JsonObject | ChatSchema | ResponseSchema | None, param: str) -> JsonFormat | None:
    """Return the engine's format; None for text. ``param`` is the field. Raises HttpRefusal."""
    match asked:
        case JsonObject():
            return JsonFormat()
        case ChatSchema(json_schema=schema):
            return schema.checked(f"{param}.json_schema.schema")
        case ResponseSchema():
            return asked.checked(f"{param}.schema")
        case PlainText() | None:
            return None
