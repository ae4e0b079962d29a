"""Settings of a Live session: validation, the view for the client, and conversion to the session's own settings.

Source: openai-python ``types/live``: ``SessionConfig``, ``SessionUpdateConfig``, ``SessionResource``. Unsupported
settings are refused with one sentence; unknown fields are ignored. Stateless.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct

from app.ids import new_id
from app.live.permissions import ClientConfig, Permissions, permissions_of
from app.realtime.ports import IdlePolicy
from app.realtime.protocol import Format, MessageText, RawMessage
from app.realtime.protocol.options import PcmaFormat, PcmFormat, PcmuFormat
from app.refusal import Refusal

MOST_ITEMS = 128
"""The protocol's limit on messages in ``input``."""

DELEGATE = "delegate_to_application"
"""The function that the LLM calls if the client is the backend: the session turns the call into a delegation."""
_DELEGATE: dict[str, Any] = {
    "type": "function",
    "name": DELEGATE,
    "description": "Hand the user's request to the application, which can look things up and act. Call it for whatever "
    "you do not know or can't do yourself; its result is what the application answers.",
    "parameters": {"type": "object", "properties": {}},
}


class _Output(Struct, frozen=True):
    voice: str | dict[str, Any] | None = None


class _Audio(Struct, frozen=True):
    format: PcmFormat | PcmuFormat | PcmaFormat | None = None
    output: _Output | None = None


class _Part(Struct, frozen=True):
    text: str
    type: Literal["input_text", "output_text", "text"] = "input_text"


class _Message(Struct, frozen=True):
    role: Literal["developer", "user", "assistant"]
    content: Annotated[list[_Part], Meta(min_length=1, max_length=1)]


class _Responses(Struct, frozen=True, omit_defaults=True):
    """The client's ``delegation.responses``: settings for the model that answers delegated requests.

    ``instructions``, ``tools``, ``tool_choice`` and ``max_output_tokens`` take effect. The other fields are only
    validated and returned to the client; unknown fields are dropped.
    """

    model: str | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    service_tier: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None


class _Delegation(Struct, frozen=True, omit_defaults=True):
    type: Literal["client", "responses"]
    responses: _Responses | None = None
    acknowledgement_delay_ms: Annotated[int, Meta(ge=0)] | None = None


class _WakePolicy(Struct, frozen=True):
    type: Literal["speech"]
    vad_threshold: Annotated[float, Meta(ge=0, le=1)] = 0.5


class _Session(Struct, frozen=True):
    model: str
    audio: _Audio | None = None
    delegation: _Delegation | None = None
    input: Annotated[list[_Message], Meta(max_length=MOST_ITEMS)] | None = None
    instructions: str | None = None
    idle_timeout_s: Annotated[int, Meta(ge=1)] | None = None
    wake_policy: _WakePolicy | None = None
    client: ClientConfig | None = None


class _Update(Struct, frozen=True):
    delegation: _Delegation | None = None


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """The effective settings of one session."""

    model: str
    format: Format | None
    """None if the transport carries the audio."""
    voice: str | dict[str, Any]
    instructions: str
    delegation: _Delegation
    history: tuple[RawMessage, ...] = ()
    """Messages from before the session."""
    own_tools: tuple[dict[str, Any], ...] = ()
    """Functions that the server runs itself, in addition to the client's."""
    idle: IdlePolicy | None = None
    """When the session pauses; None: never."""
    permissions: Permissions = field(default_factory=Permissions)
    """What the data channel of a call may carry."""

    @property
    def target(self) -> Literal["client", "responses"]:
        """Return the backend that handles the LLM's delegations."""
        return self.delegation.type

    def patch(self) -> dict[str, Any]:
        """Return the settings for the session."""
        output = {"voice": self.voice} if self.voice else {}
        return {
            "model": self.model[:200],
            "audio": {
                "input": {"format": msgspec.to_builtins(self.format or PcmFormat()), "transcription": {}},
                "output": output,
            },
            "parley": {"alignment": True},
            **self.backend(),
        }

    def updated(self, session: dict[str, Any]) -> tuple[LiveConfig, dict[str, Any]]:
        """Return the settings after a ``session.update``, and the change for the session. Raises Refusal."""
        _check_served(session)
        change = _convert(session, _Update).delegation
        if change is None:
            return self, {}
        if change.type != self.delegation.type:
            message = f"delegation.type can't change from {self.delegation.type!r}: set it in session.start."
            raise Refusal("invalid_value", message, "session.delegation.type")
        fields = {**_given(self.delegation), **_given(change)}
        if change.responses is not None:
            before = self.delegation.responses or _Responses()
            fields["responses"] = _Responses(**{**_given(before), **_given(change.responses)})
        config = replace(self, delegation=_Delegation(**fields))
        return config, config.backend()

    def shown(self) -> dict[str, Any]:
        """Return the session as its client sees it, without its id and expiry."""
        output = {"output": {"voice": self.voice}} if self.voice else {}
        format = {} if self.format is None else {"format": _shown_format(self.format)}
        history = [{"type": "message", "role": _ROLES[one.role], "content": [_shown_part(one)]} for one in self.history]
        return {
            "model": self.model,
            "status": "active",
            "audio": {**format, **output},
            "delegation": _shown_delegation(self.delegation),
            "instructions": self.instructions,
            "input": history,
            "store": False,
            **({"client": self.permissions.shown} if self.permissions.shown else {}),
        }

    def backend(self) -> dict[str, Any]:
        """Return the settings that may change after the start."""
        backend = self.delegation.responses or _Responses()
        texts = (self.instructions, backend.instructions)
        return {
            "instructions": "\n\n".join(text for text in texts if text),
            "tools": [*self.own_tools, *([_DELEGATE] if self.target == "client" else map(_tool, backend.tools or []))],
            "tool_choice": backend.tool_choice or "auto",
            "max_output_tokens": min(backend.max_output_tokens or _MOST_TOKENS, _MOST_TOKENS),
        }


_MOST_TOKENS = 4096
_ROLES = {"system": "developer", "user": "user", "assistant": "assistant"}


def started(session: dict[str, Any], media: bool = False, own_tools: tuple[dict[str, Any], ...] = ()) -> LiveConfig:
    """Return the settings of a ``session.start``. Raises Refusal.

    ``media`` is true if the transport carries the audio.
    """
    _check_served(session)
    asked = _convert(session, _Session)
    audio = asked.audio or _Audio()
    if media and audio.format is not None:
        path = "session.audio.format"
        raise Refusal("invalid_value", f"{path} is for WebSockets: leave it out, the SDP offer has the format.", path)
    if not media and asked.idle_timeout_s is not None:
        path = "session.idle_timeout_s"
        raise Refusal("invalid_value", f"{path} is for WebRTC: leave it out, a WebSocket's session never pauses.", path)
    delegation = asked.delegation or _Delegation("client")
    if delegation.type == "responses" and (delegation.responses is None or not delegation.responses.model):
        path = "session.delegation.responses.model"
        raise Refusal("missing_required_parameter", f"{path} is missing.", path)
    return LiveConfig(
        model=asked.model,
        format=None if media else audio.format or PcmFormat(),
        voice=(audio.output.voice if audio.output else None) or "",
        instructions=asked.instructions or "",
        delegation=delegation,
        history=tuple(_message(one) for one in asked.input or []),
        own_tools=own_tools,
        idle=_idle(asked),
        permissions=permissions_of(asked.client),
    )


def _idle(asked: _Session) -> IdlePolicy | None:
    if asked.idle_timeout_s is None:
        return None
    return IdlePolicy(asked.idle_timeout_s, (asked.wake_policy or _WakePolicy("speech")).vad_threshold)


def _message(message: _Message) -> RawMessage:
    role = "system" if message.role == "developer" else message.role
    return RawMessage(new_id("item"), role, (MessageText(message.content[0].text),))


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool for the session. The model speaks about the result of an MCP tool without a request."""
    return {"parley": {"answer": True}, **tool} if tool.get("type") == "mcp" else tool


def _shown_delegation(delegation: _Delegation) -> dict[str, Any]:
    """Return the delegation without the keys of MCP servers."""
    shown = msgspec.to_builtins(delegation)
    for tool in shown.get("responses", {}).get("tools", ()):
        for secret in ("authorization", "headers"):
            tool.pop(secret, None)
    return shown


def _shown_part(message: RawMessage) -> dict[str, Any]:
    (part,) = message.content
    assert isinstance(part, MessageText)
    return {"type": "output_text" if message.role == "assistant" else "input_text", "text": part.text}


def _shown_format(format: Format) -> dict[str, Any]:
    fields = msgspec.to_builtins(format)
    return {"rate": 8000, **fields}


def _check_served(session: dict[str, Any]) -> None:
    """Raise Refusal for unsupported settings."""
    delegation = session.get("delegation")
    if isinstance(delegation, dict):
        _check_delegation(cast("dict[str, Any]", delegation))
    if session.get("triggers"):
        _refuse("session.triggers", "Triggers of decisions are")
    if session.get("store"):
        _refuse("session.store", "Stored sessions, and their forks and recordings, are")


def _check_delegation(delegation: dict[str, Any]) -> None:
    if delegation.get("type") == "decisions":
        _refuse("session.delegation.type", "Decisions are")
    responses = delegation.get("responses")
    backend = cast("dict[str, Any]", responses) if isinstance(responses, dict) else {}
    tools = backend.get("tools")
    for i, tool in enumerate(cast("list[Any]", tools) if isinstance(tools, list) else []):
        kind = cast("dict[str, Any]", tool).get("type") if isinstance(tool, dict) else None
        if kind not in ("function", "mcp"):
            path = f"session.delegation.responses.tools[{i}].type"
            _refuse(path, f"Hosted tools (here {kind!r:.60}) are", "; use functions, which the client runs, or mcp")
    choice = backend.get("tool_choice")
    if isinstance(choice, dict) and cast("dict[str, Any]", choice).get("type") != "function":
        _refuse("session.delegation.responses.tool_choice", "Choices of hosted tools are")


def _refuse(path: str, what: str, more: str = "") -> None:
    raise Refusal("not_supported", f"{what} not supported{more}.", path)


def _given(struct: Struct) -> dict[str, Any]:
    """Return the fields that are set."""
    return {name: value for name in struct.__struct_fields__ if (value := getattr(struct, name)) is not None}


def _convert(session: dict[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(session, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        code = "missing_required_parameter" if "missing required" in what else "invalid_value"
        path = f"session{where.rstrip('`')}"
        raise Refusal(code, f"{path}: {what}.", path) from None
