"""A session's settings: all defaults, and the merging of partial changes.

The structs follow the session object of the OpenAI Realtime GA protocol (realtime_session_create_request), the most
comprehensive dialect; other dialects map their fields to it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from app.ids import USER
from app.realtime.protocol.beta import check_shape
from app.refusal import Refusal

S = TypeVar("S", bound=Struct)
Ms = Annotated[int, Meta(ge=0, le=60_000)]


class PcmFormat(Struct, frozen=True, tag="audio/pcm"):
    """16-bit little-endian mono PCM."""

    rate: Literal[16000, 24000] = 24000


class SpeakerFormat(Struct, frozen=True, tag="audio/pcm"):
    rate: Literal[24000] = 24000


class PcmuFormat(Struct, frozen=True, tag="audio/pcmu"):
    """G.711 µ-law at 8 kHz."""


class PcmaFormat(Struct, frozen=True, tag="audio/pcma"):
    """G.711 A-law at 8 kHz."""


Language = Annotated[str, Meta(max_length=35)]
Keyword = Annotated[str, Meta(max_length=100)]


class Transcription(Struct, frozen=True):
    """Settings for transcripts of the user's speech, and hints for the ASR model.

    ``model`` is only echoed: the loaded model transcribes. ``delay`` is ignored, so it is not echoed.
    """

    model: str | None = None
    language: Language | UnsetType | None = UNSET
    languages: Annotated[list[Language], Meta(max_length=100)] | UnsetType | None = UNSET
    prompt: Annotated[str, Meta(max_length=4000)] | UnsetType | None = UNSET
    keywords: Annotated[list[Keyword], Meta(max_length=200)] | UnsetType | None = UNSET


class NoiseReduction(Struct, frozen=True):
    """Noise suppression: only a near voice counts as the user's, and ASR receives less noise (noise_reduction.py).

    ``far_field`` also amplifies distant voices. ``strength`` is our extension: 0 disables it.
    """

    type: Literal["near_field", "far_field"] = "near_field"
    strength: Annotated[float, Meta(ge=0, le=1)] = 1.0


BACKCHANNEL_MS = 1000

Speaker = Literal["auto", "any", "first", "enrolled"]
Voiceprint = Annotated[str, Meta(max_length=1024)]


class ServerVad(Struct, frozen=True, tag="server_vad"):
    """Turns end after a fixed silence."""

    threshold: Annotated[float, Meta(ge=0, le=1)] = 0.5
    prefix_padding_ms: Ms = 300
    silence_duration_ms: Ms = 500
    idle_timeout_ms: Annotated[int, Meta(ge=1, le=600_000)] | None = None
    create_response: bool = True
    interrupt_response: bool = True
    backchannel_ms: Ms = BACKCHANNEL_MS
    """Ours: speech over an answer that lasts longer is a turn, whatever its words. 0: any speech is a turn at once."""
    speaker: Speaker = "auto"
    """Ours: whose speech opens a turn: any voice, the session's first one, or that of ``voiceprint``. ``auto``: as the
    server's settings say."""
    voiceprint: Voiceprint | None = None
    """Ours: the voice for ``speaker: enrolled``, from ``POST /v1/speakers``."""


class SemanticVad(Struct, frozen=True, tag="semantic_vad"):
    """Turns end when the end-of-turn model (input/endpointing.py) decides that the user has finished."""

    eagerness: Literal["auto", "low", "medium", "high"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True
    end_of_turn: Literal["auto", "smart_turn", "words"] = "auto"
    """Ours: the end-of-turn model. ``auto``: the deployment's; ``words``: the judge that listens to no sound."""
    backchannel_ms: Ms = BACKCHANNEL_MS
    """Ours: as for ``server_vad``."""
    speaker: Speaker = "auto"
    """Ours: as for ``server_vad``."""
    voiceprint: Voiceprint | None = None
    """Ours: as for ``server_vad``."""
    target_cuts: Annotated[float, Meta(ge=0.005, le=0.5)] | None = None
    """Ours: the share of turns that may end early. The waits are tuned to the speaker. None: they are not tuned."""

    threshold = 0.5
    prefix_padding_ms = 300
    idle_timeout_ms = None

    @property
    def waits(self) -> Literal["low", "medium", "high"]:
        return "medium" if self.eagerness == "auto" else self.eagerness


class AudioIn(Struct, frozen=True):
    format: PcmFormat | PcmuFormat | PcmaFormat = PcmFormat()
    transcription: Transcription | None = None
    noise_reduction: NoiseReduction | None = None
    turn_detection: ServerVad | SemanticVad | None = ServerVad()


class AudioOut(Struct, frozen=True):
    format: SpeakerFormat | PcmuFormat | PcmaFormat = SpeakerFormat()
    voice: str | dict[str, Any] = ""
    speed: Annotated[float, Meta(ge=0.25, le=1.5)] = 1.0


class AudioOptions(Struct, frozen=True):
    input: AudioIn = AudioIn()
    output: AudioOut = AudioOut()


class SessionTool(Struct, frozen=True):
    """A function that the client offers."""

    name: Annotated[str, Meta(max_length=128)]
    type: Literal["function"] = "function"
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parley: dict[str, Any] | UnsetType = UNSET
    """Ours: changes of the session's ToolOptions for this function."""


class TokenLimits(Struct, frozen=True):
    post_instructions: Annotated[int, Meta(ge=1)] | None = None


class RetentionRatio(Struct, frozen=True, tag="retention_ratio"):
    """The fraction of the prompt to keep when it is truncated, so that the next turns need no truncation."""

    retention_ratio: Annotated[float, Meta(ge=0, le=1)]
    token_limits: TokenLimits | None = None


Phrase = Annotated[str, Meta(max_length=200)]
Pause = Annotated[float, Meta(ge=0, le=600)]


class ToolOptions(Struct, frozen=True):
    """The lines that the user hears while a tool runs, and the use of its result."""

    speech: bool | None = None
    """Whether the user hears the lines and the sound below. None: only for tools that the server runs."""
    preamble: Phrase | None = None
    """The first line; None: a phrase in the session's language. "": none."""
    preamble_s: Pause = 1.0
    """Seconds of silence before it. A call that returns earlier has none, nor does one that the model introduced."""
    progress: Annotated[list[Phrase], Meta(max_length=8)] | None = None
    """The further lines in turn; None: phrases in the session's language."""
    progress_s: Pause = 10.0
    """Seconds from one line to the next. 0: no further lines."""
    sound_s: Pause = 2.0
    """Seconds of silence after which a soft sound is played. 0: none."""
    on_interrupt: Literal["continue", "cancel"] = "continue"
    """Whether a tool that the server runs is cancelled by the user's next turn."""
    answer: bool = False
    """Whether the model speaks about the result without a request, as soon as nobody speaks."""


class MemoryOptions(Struct, frozen=True):
    """Memory across sessions: the user of the API key whose facts the model knows and changes."""

    user: Annotated[str, Meta(pattern=USER)] = ""


class Extras(Struct, frozen=True):
    """Our extensions of the protocol."""

    alignment: bool = False
    """Send ``parley.output_audio.alignment``: the position of the speech in the answer's text."""
    partials: bool = False
    """Send ``parley.input_audio_transcription.partial``: the user's words while they speak."""
    speakers: bool = False
    """Send ``parley.input_audio_transcription.speaker``: which of the session's voices spoke a turn."""
    summaries: bool = False
    """Send ``parley.conversation.summarized`` when a summary replaces older turns in prompts."""
    pauses: bool = False
    """Send ``parley.output_audio.paused`` and ``resumed`` to a client that plays the audio and can pause it."""
    resume: bool = False
    """Return a ``resume_token`` to resume the session with. It can't be disabled again."""
    tools: ToolOptions = ToolOptions()
    """The settings of all tools without settings of their own."""
    memory: MemoryOptions | None = None
    """The memory that the session uses; None: none. Not for single responses."""


_LISTED, _LISTED_CHARS = 8, 64

Modalities = Annotated[list[Literal["text", "audio"]], Meta(min_length=1)]
Tools = Annotated[list[SessionTool], Meta(max_length=128)]
MaxTokens = Annotated[int, Meta(ge=1, le=4096)] | Literal["inf"]


class SessionOptions(Struct, frozen=True):
    """A session's effective settings. A session of type ``transcription`` never answers."""

    type: Literal["realtime", "transcription"] = "realtime"
    model: str = ""
    output_modalities: Modalities = field(default_factory=lambda: ["audio"])
    instructions: str = ""
    tools: Tools = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool | None = None
    max_output_tokens: MaxTokens = "inf"
    tracing: Any = None
    truncation: Literal["auto", "disabled"] | RetentionRatio = "auto"
    prompt: Any = None
    include: None = None
    reasoning: Any = None
    audio: AudioOptions = AudioOptions()
    parley: Extras = Extras()

    @property
    def can_respond(self) -> bool:
        return self.type == "realtime"

    @property
    def transcribes(self) -> bool:
        """Whether the client receives transcripts."""
        return not self.can_respond or self.audio.input.transcription is not None

    @property
    def auto_responds(self) -> bool:
        """Whether the end of a turn starts an answer."""
        detection = self.audio.input.turn_detection
        return self.can_respond and detection is not None and detection.create_response


class ResponseAudio(Struct, frozen=True):
    output: AudioOut = AudioOut()


class ResponseOptions(Struct, frozen=True):
    """The effective settings of one response: the session's, changed by response.create."""

    output_modalities: Modalities
    instructions: str
    tools: Tools
    tool_choice: str | dict[str, Any]
    max_output_tokens: MaxTokens
    audio: ResponseAudio
    metadata: dict[str, str] | None = None
    parley: Extras = Extras()

    @property
    def speaks(self) -> bool:
        return "audio" in self.output_modalities

    @property
    def voice(self) -> str:
        return name_of(self.audio.output.voice)


def response_options(session: SessionOptions, patch: dict[str, Any]) -> tuple[ResponseOptions, list[str]]:
    """Return the session's settings merged with ``patch``, and the paths of unknown fields. Raises Refusal."""
    check_shape(patch, "response")
    base = ResponseOptions(
        output_modalities=session.output_modalities,
        instructions=session.instructions,
        tools=session.tools,
        tool_choice=session.tool_choice,
        max_output_tokens=session.max_output_tokens,
        audio=ResponseAudio(session.audio.output),
        parley=session.parley,
    )
    merged, unknown = merge(base, patch, "response")
    _check_modalities(merged.output_modalities, "response.output_modalities")
    _check_tools(merged.tools, merged.parley, "response")
    _check_metadata(merged.metadata)
    return merged, unknown


def session_options(current: SessionOptions, patch: dict[str, Any]) -> tuple[SessionOptions, list[str]]:
    """Return ``current`` merged with ``patch``, and the paths of unknown fields, which are ignored.

    Raises Refusal if ``patch`` is invalid.
    """
    check_shape(patch, "session")
    merged, unknown = merge(current, {key: value for key, value in patch.items() if key != "model"}, "session")
    if merged.type != current.type:
        message = f"The session's type is fixed ({current.type!r}): reconnect with or without ?intent=transcription."
        raise Refusal("invalid_value", message, "session.type")
    _check_modalities(merged.output_modalities, "session.output_modalities")
    _check_tools(merged.tools, merged.parley, "session")
    return merged, unknown


def tool_options(defaults: ToolOptions, patch: dict[str, Any] | UnsetType | None, path: str = "tool") -> ToolOptions:
    """Return a tool's options: the session's, changed by its own. Raises Refusal."""
    return merge(defaults, patch, path)[0] if isinstance(patch, dict) else defaults


def listed(fields: list[str]) -> str:
    """Return field names for the log, shortened, since a client may send any number of any length."""
    more = f",… ({len(fields)})" if len(fields) > _LISTED else ""
    return ",".join(field[:_LISTED_CHARS] for field in fields[:_LISTED]) + more


def merge(current: S, patch: dict[str, Any], path: str) -> tuple[S, list[str]]:
    """Return a copy of ``current`` with the fields of ``patch`` replaced, structs recursively.

    None counts as absent unless the field accepts it, because some clients send every field.
    """
    unknown: list[str] = []
    tree = _merged(current, type(current), patch, path, unknown)
    try:
        return msgspec.convert(tree, type(current)), unknown
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise Refusal("invalid_value", f"{what} in {path}{where.rstrip('`')}.", f"{path}{where.rstrip('`')}") from None


def name_of(voice: str | dict[str, Any]) -> str:
    """Return the name of a voice, given as a name or as an object with an id."""
    return voice if isinstance(voice, str) else str(voice.get("id", ""))


def _merged(current: Struct | None, kind: Any, patch: dict[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    known = {name: hints[name] for name in kind.__struct_fields__}
    tag = kind.__struct_config__.tag
    tree: dict[str, Any] = msgspec.to_builtins(current) if isinstance(current, kind) else ({"type": tag} if tag else {})
    for key, value in patch.items():
        if key not in known or known[key] is type(None):  # a field that is always null is echoed and otherwise ignored
            if not (key == "type" and tag) and value is not None:
                unknown.append(f"{path}.{key}")
            continue
        if value is None and type(None) not in get_args(known[key]) and known[key] is not Any:
            continue
        inner = _struct_for(known[key], value, getattr(current, key, None))
        if inner is not None and isinstance(value, dict):
            before = getattr(current, key, None)
            tree[key] = _merged(before, inner, cast("dict[str, Any]", value), f"{path}.{key}", unknown)
        else:
            tree[key] = value
    if tag and "type" in patch:
        tree["type"] = patch["type"]
    return tree


def _struct_for(hint: Any, value: Any, current: Any) -> type[Struct] | None:
    """Return the struct that a field's new value describes: by its type tag, else the current one, else the first."""
    kinds = _structs(hint)
    tag_name = cast("dict[str, Any]", value).get("type") if isinstance(value, dict) else None
    for kind in kinds:
        if tag_name is not None and kind.__struct_config__.tag == tag_name:
            return kind
    return next((kind for kind in kinds if isinstance(current, kind)), kinds[0] if kinds else None)


def _structs(hint: Any) -> list[type[Struct]]:
    """Return the struct types in a type hint."""
    return [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and issubclass(kind, Struct)]


def _check_modalities(modalities: list[Any], path: str) -> None:
    if len(modalities) != 1:
        raise Refusal("invalid_value", f"{path} must be ['audio'] or ['text']: audio answers include their text.", path)


def _check_tools(tools: list[SessionTool], extras: Extras, path: str) -> None:
    for i, tool in enumerate(tools):
        tool_options(extras.tools, tool.parley, f"{path}.tools[{i}].parley")


def _check_metadata(metadata: dict[str, str] | None) -> None:
    """Check the protocol's limit: 16 pairs, keys of 64 characters, values of 512."""
    pairs = (metadata or {}).items()
    if len(pairs) > 16 or any(len(key) > 64 or len(value) > 512 for key, value in pairs):
        message = "metadata must have at most 16 pairs, with keys of 64 and values of 512 characters."
        raise Refusal("invalid_value", message, "response.metadata")
