"""Chunks: the data that moves between stages, to the client, and from the user. A closed union of structs.

An unknown field, or an array of the wrong dtype, is a type error where a chunk is made and a WireError where one is
decoded. Data that only neighbouring stages of one model family exchange travels as ``Tensors``, which wraps a struct of
that family.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Literal, Self, TypeVar, cast, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core import Pcm, Wave

S = TypeVar("S", bound=msgspec.Struct)

Kind = str
"""The tag of a chunk's struct; for Tensors, the name that their family chose. ``kinds`` makes sets of them."""

Finish = Literal["stop", "length", "tool"]
"""Why an answer's text ended: it is complete, it reached the length limit, or it calls a tool."""

Codebooks = NDArray[np.int16]
Pixels = NDArray[np.uint8]
Counts = dict[str, int]


class _Chunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="t"):
    """Base of every chunk. (Each subclass repeats ``frozen``: type checkers do not inherit it.)"""

    @property
    def kind(self) -> Kind:
        return str(self.__struct_config__.tag)


class Speech(_Chunk, frozen=True, tag="speech"):
    """A piece of the user's speech, sent while they speak."""

    pcm: Pcm
    """int16 [samples] at MIC_RATE_HZ, mono. For a duplex stage the rate is its ``Duplex.rate_hz``."""


class VideoFrame(_Chunk, frozen=True, tag="video_frame"):
    """A frame of the user's camera, sent while they speak.

    It lies between the speech chunks before and after it. A frame whose ``at_s`` lies outside those chunks counts as
    taken where it lies.
    """

    pixels: Pixels
    """uint8 [height, width, 3]. All frames of a turn have the same size."""
    at_s: float
    """Seconds from the turn's first sample."""


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A word of the user. Times are in seconds from the turn's first sample."""

    text: str
    start_s: float
    end_s: float
    logprob: float | None = None
    """The natural logarithm of its probability; None if the recogniser gives none."""


class Transcript(_Chunk, frozen=True, tag="transcript"):
    """The user's words so far. A turn has exactly one final transcript, with all of its words."""

    text: str
    final: bool = False
    understood: bool = True
    confident: bool = True
    """Whether the recogniser is sure of all words."""
    complete: bool | None = None
    """Whether the words already form a complete request; None if the recogniser cannot tell."""
    words: tuple[Word, ...] = ()
    """The time of each word of ``text``, in a final transcript of a recogniser that reports times; otherwise empty."""
    language: str = ""
    """The language of the speech, as BCP 47; empty if the recogniser does not detect it."""


class Text(_Chunk, frozen=True, tag="text"):
    """The next piece of the answer's text."""

    text: str
    start: int
    """The position in the answer of its first character, from 0."""
    token_ids: tuple[int, ...] = ()
    """Token ids, for the tokenizer that the thinker's ``Facets.tokenizer`` names."""
    language: str = ""
    """The language of the user's turn, from its Transcript. The run fills it in; a thinker leaves it empty."""
    frame: int | None = None
    """The number of the frame that it belongs to, as in Audio. The run fills it in."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class VoiceText(_Chunk, frozen=True, tag="voice_text"):
    """A piece of the answer as a voice should speak it: without Markdown marks, for example.

    Voices get it instead of Text. It never goes to clients.
    """

    text: str
    start: int
    """The position in the answer of its first character, from 0."""
    language: str = ""
    """The language of the user's turn, as in Text."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class ToolCallDelta(_Chunk, frozen=True, tag="tool_call_delta"):
    """The next piece of a tool call's arguments, which are JSON."""

    call_id: str
    name: str
    arguments: str


class ToolCall(_Chunk, frozen=True, tag="tool_call"):
    """A whole tool call. It repeats the arguments of its earlier ToolCallDeltas."""

    call_id: str
    name: str
    arguments: str
    token_ids: tuple[int, ...] = ()


class Usage(_Chunk, frozen=True, tag="usage"):
    """The tokens that an answer used, and why its text ended."""

    input_tokens: int = 0
    output_tokens: int = 0
    audio_tokens: int = 0
    """Part of ``input_tokens``."""
    image_tokens: int = 0
    """Part of ``input_tokens``."""
    cached_tokens: int = 0
    """Part of ``input_tokens`` that did not have to be computed."""
    finish: Finish = "stop"
    prompt_ids: tuple[int, ...] = ()
    """The prompt's token ids, only for a request with ``dump``."""


class Codes(_Chunk, frozen=True, tag="codes"):
    """Frames of the audio codec."""

    frames: Codebooks
    """int16 [frames, codebooks]."""
    text_end: int = 0
    """Characters of the answer that are spoken by the end of these frames."""


class Audio(_Chunk, frozen=True, tag="audio"):
    """The next piece of the answer's audio."""

    wave: Wave
    """float32 [samples] in [-1, 1] at SPEAKER_RATE_HZ, mono."""
    marks: tuple[tuple[int, int], ...] = ()
    """Positions of the voice in the text, as pairs (sample, characters): before this sample of the answer, this many
    characters of its text have been spoken.

    Both numbers rise over all chunks of an answer. Some voices can only estimate them.
    """
    frame: int | None = None
    """The number of its frame on the session's clock, from 0; None outside duplex stages. The run fills it in.

    A jump of more than 1 means that frames were skipped, and that much time has passed.
    """

    @property
    def text_end(self) -> int:
        """Characters of the answer that have been spoken at the end of this chunk."""
        return self.marks[-1][1] if self.marks else 0


class Tensors(_Chunk, frozen=True, tag="tensors"):
    """A struct that only neighbouring stages of one family exchange, as its fields: arrays, numbers, strings."""

    name: str
    """The struct's tag, which begins with its family, like ``qwen3_omni.text``."""
    fields: dict[str, Any]
    placed: bool = False
    """Whether the struct contains its own position in the stream.

    Such a chunk is sent again when a stage starts again on another replica: its reader recognises what it already has.
    """

    @classmethod
    def of(cls, struct: msgspec.Struct, placed: bool = False) -> Self:
        """Wrap a family's struct."""
        return cls(str(struct.__struct_config__.tag), msgspec.structs.asdict(struct), placed)

    @property
    def kind(self) -> Kind:
        return self.name

    def read(self, struct: type[S]) -> S:
        """Return the struct.

        Raises:
            msgspec.ValidationError: The fields are not those of ``struct``, or have other types.
        """
        return msgspec.convert(self.fields, struct, dec_hook=checked)


class Bundle(_Chunk, frozen=True, tag="bundle"):
    """One input of the next stage: the chunks of all roles, main and companions, of a request in a ``joined`` group."""

    roles: dict[str, tuple[Chunk, ...]]


class Checkpoint(_Chunk, frozen=True, tag="checkpoint"):
    """A stage's state, from which another replica continues if the stage's replica is lost. It goes to no other
    stage.
    """

    state: dict[str, Any]
    """Arrays and plain values by name. A stage sets only this field; the run fills in the others."""
    stage: str = ""
    """The name of the stage."""
    covers: Counts = {}
    """Counts of what the stage had produced at that time."""


Output = Transcript | Text | ToolCallDelta | ToolCall | Usage | Audio | Codes
"""Chunks that a client may receive. Codes only come with ``Request.dump``."""

Chunk = Output | Speech | VideoFrame | VoiceText | Tensors | Bundle | Checkpoint


def kinds(*types: type[msgspec.Struct]) -> frozenset[Kind]:
    """Return the kinds of chunk types, or of a family's own structs."""
    return frozenset(str(one.__struct_config__.tag) for one in types)


def checked(annotation: Any, value: Any) -> Any:
    """Check a decoded array; msgspec's ``dec_hook``. Raises TypeError for a value that is no array or has another
    dtype.
    """
    wanted = _dtype(annotation)
    if not isinstance(value, np.ndarray):
        raise TypeError(f"expected a NumPy array, not {type(value).__name__}")
    if wanted is not None and value.dtype != wanted:
        raise TypeError(f"expected a NumPy array of {wanted}, not of {value.dtype}")
    return value


@cache
def _dtype(annotation: Any) -> np.dtype[Any] | None:
    """Return the dtype of an ``NDArray[...]``; None means any."""
    (scalar,) = get_args(get_args(annotation)[1])
    return None if scalar is Any else np.dtype(scalar)


_ARRAYS: dict[type[msgspec.Struct], tuple[str, np.dtype[Any] | None, tuple[str, ...]]] = {
    Audio: ("wave", _dtype(Wave), ("samples",)),
    Codes: ("frames", _dtype(Codebooks), ("frames", "codebooks")),
    Speech: ("pcm", _dtype(Pcm), ("samples",)),
    VideoFrame: ("pixels", _dtype(Pixels), ("height", "width", "channels")),
}
"""The array of each chunk type that has one: its field, its dtype, and its axes."""


LOUDEST = 16.0
"""Maximum amplitude of Audio. Voices may exceed 1 slightly; much larger values are integers that were not scaled."""


def array_fault(chunk: Chunk, name: str = "") -> str:
    """Return what is wrong with a chunk's array, and the remedy; empty if it is as declared.

    ``name`` is the array's name in the message.
    """
    if (declared := _ARRAYS.get(type(chunk))) is None:
        return ""
    field, dtype, axes = declared
    array: Any = getattr(chunk, field)
    name = name or f"{type(chunk).__name__}.{field}"
    if not isinstance(array, np.ndarray):
        return f"{name} must be a NumPy array of {dtype} {axes[0]}, not a {type(array).__name__}"
    found = cast("NDArray[Any]", array)
    if found.dtype != dtype:
        scaled = isinstance(chunk, Audio) and found.dtype == np.int16
        remedy = "pcm.astype(np.float32) / 32768" if scaled else f"{field}.astype(np.{dtype})"
        return f"{name} must be {dtype} {axes[0]}, not {found.dtype}; convert with {remedy}"
    if found.ndim != len(axes):
        return f"{name} must have the shape [{', '.join(axes)}], not {list(found.shape)}; reshape the array"
    return _level_fault(found, name) if isinstance(chunk, Audio) else ""


def _level_fault(wave: Wave, name: str) -> str:
    peak = float(np.abs(wave).max(initial=0.0))
    if peak <= LOUDEST:
        return ""
    if not math.isfinite(peak):
        return f"{name} contains NaN or infinite values; check the model's output"
    return f"{name} must be between -1 and 1, not up to {peak:.0f}; divide 16-bit samples by 32768"


OUTPUTS = kinds(*get_args(Output))


def texts(pieces: Iterable[str]) -> Iterator[Text]:
    """Yield an answer's pieces as Text chunks with their positions."""
    start = 0
    for piece in pieces:
        yield Text(piece, start)
        start += len(piece)


def bytes_of(value: Any) -> int:
    """Estimate the memory of a chunk, or of a value in one, in bytes."""
    if isinstance(value, np.ndarray):
        return cast("NDArray[Any]", value).nbytes
    if isinstance(value, str):
        return len(value)
    if isinstance(value, msgspec.Struct):
        return 256 + sum(bytes_of(getattr(value, name)) for name in value.__struct_fields__)  # 256: the struct itself
    if isinstance(value, dict):
        return sum(map(bytes_of, cast("dict[str, Any]", value).values()))
    if isinstance(value, tuple):
        return sum(map(bytes_of, cast("tuple[Any, ...]", value)))
    return 8
