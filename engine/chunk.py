"""Chunks: all that moves between stages, to the client, and in from the user. A closed union of structs.

A field that does not exist, or an array of the wrong dtype, is a type error where a chunk is made and an error of the
wire where one is read. What only neighbouring stages of one family exchange is ``Tensors``, around a struct that the
family declares. Knows no stage and no process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Literal, Self, TypeVar, cast, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.core import Pcm, Wave

S = TypeVar("S", bound=msgspec.Struct)

Kind = str
"""The tag of a chunk's struct; of Tensors, the name that their family gave them. ``kinds`` makes sets of them."""

Finish = Literal["stop", "length", "tool"]
"""The reason why an answer's text is over: it was said; it was as long as it may be; or a tool is to be called."""

Codebooks = NDArray[np.int16]
Pixels = NDArray[np.uint8]
Counts = dict[str, int]


class _Chunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="t"):
    """Base of every chunk. (Frozen is said again by each: type checkers do not inherit it.)"""

    @property
    def kind(self) -> Kind:
        return str(self.__struct_config__.tag)


class Speech(_Chunk, frozen=True, tag="speech"):
    """The user's speech while they speak: int16 [samples] at MIC_RATE_HZ."""

    pcm: Pcm


class VideoFrame(_Chunk, frozen=True, tag="video_frame"):
    """A frame of the user's camera while they speak: uint8 [height, width, 3], all of a turn of one size.

    It was taken ``at_s`` seconds behind the turn's first sample, and lies between the speech before it and the speech
    behind it. One that comes late, or whose time is not come yet, counts as taken where it lies.
    """

    pixels: Pixels
    at_s: float


class Word(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A word that the user said: when, in seconds from the turn's first sample."""

    text: str
    start_s: float
    end_s: float
    logprob: float | None = None
    """The natural logarithm of its probability; None where the ears cannot tell."""


class Transcript(_Chunk, frozen=True, tag="transcript"):
    """The user's words so far, or with ``final`` all of them; a turn has one final transcript."""

    text: str
    final: bool = False
    understood: bool = True
    confident: bool = True
    """Whether the ears are sure of all of the words."""
    complete: bool | None = None
    """Whether the words are a request as they stand; None where the ears cannot tell."""
    words: tuple[Word, ...] = ()
    """The time of each word of ``text``, in a final transcript of ears that give times; else empty."""


class Text(_Chunk, frozen=True, tag="text"):
    """The next piece of the answer: its first character is the answer's ``start``-th, from 0."""

    text: str
    start: int
    token_ids: tuple[int, ...] = ()
    """Ids of the tokenizer that the thinker's ``Facets.tokenizer`` names."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class VoiceText(_Chunk, frozen=True, tag="voice_text"):
    """The part of the answer's text that a voice is to say, where that is not all of it: marks of markdown are left
    out.

    ``start`` is where in the answer it stands; it goes to voices, in the place of Text, and to no client.
    """

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class ToolCallDelta(_Chunk, frozen=True, tag="tool_call_delta"):
    """The next piece of a call's arguments, which are JSON."""

    call_id: str
    name: str
    arguments: str


class ToolCall(_Chunk, frozen=True, tag="tool_call"):
    """A whole call, whatever pieces of its arguments came before."""

    call_id: str
    name: str
    arguments: str
    token_ids: tuple[int, ...] = ()


class Usage(_Chunk, frozen=True, tag="usage"):
    """The tokens that an answer took, and why its text is over. The last three are a part of the input."""

    input_tokens: int = 0
    output_tokens: int = 0
    audio_tokens: int = 0
    image_tokens: int = 0
    cached_tokens: int = 0
    finish: Finish = "stop"
    prompt_ids: tuple[int, ...] = ()
    """The prompt's token ids, only for a request with ``dump``."""


class Codes(_Chunk, frozen=True, tag="codes"):
    """Codec frames: int16 [frames, codebooks], behind which ``text_end`` characters of the answer have been spoken."""

    frames: Codebooks
    text_end: int = 0


class Audio(_Chunk, frozen=True, tag="audio"):
    """The next of the answer's sound: float32 [samples] at SPEAKER_RATE_HZ.

    ``marks`` tell where the voice is in the text: (sample, characters) says that before the answer's ``sample``-th, so
    many characters of it have been spoken. Samples and characters rise, over all chunks of an answer; some voices can
    only estimate them.
    """

    wave: Wave
    marks: tuple[tuple[int, int], ...] = ()

    @property
    def text_end(self) -> int:
        """Characters that have been spoken at the chunk's end."""
        return self.marks[-1][1] if self.marks else 0


class Tensors(_Chunk, frozen=True, tag="tensors"):
    """A struct that only neighbouring stages of one family know, by its fields: arrays, numbers, strings.

    ``name`` is the struct's tag, with its family's before a dot, as in ``qwen3_omni.text``.
    With ``placed`` the struct says itself where it belongs. It is handed on again where a stage begins anew: whoever
    takes it knows what they have.
    """

    name: str
    fields: dict[str, Any]
    placed: bool = False

    @classmethod
    def of(cls, struct: msgspec.Struct, placed: bool = False) -> Self:
        return cls(str(struct.__struct_config__.tag), msgspec.structs.asdict(struct), placed)

    @property
    def kind(self) -> Kind:
        return self.name

    def read(self, struct: type[S]) -> S:
        """The struct again. Raises msgspec.ValidationError where the fields are not its own, or not of their types."""
        return msgspec.convert(self.fields, struct, dec_hook=checked)


class Bundle(_Chunk, frozen=True, tag="bundle"):
    """The chunks that all roles of a joined group gave, for the next stage."""

    roles: dict[str, tuple[Chunk, ...]]


class Checkpoint(_Chunk, frozen=True, tag="checkpoint"):
    """A stage's state, for whoever goes on behind it where the stage's replica is lost; it goes nowhere else.

    A stage gives ``state`` alone: arrays and plain values by name. Which stage that was, and how much it had given by
    then, is added by the run.
    """

    state: dict[str, Any]
    stage: str = ""
    covers: Counts = {}


Output = Transcript | Text | ToolCallDelta | ToolCall | Usage | Audio | Codes
"""Chunks that a client may get; Codes only with ``Request.dump``."""

Chunk = Output | Speech | VideoFrame | VoiceText | Tensors | Bundle | Checkpoint


def kinds(*types: type[msgspec.Struct]) -> frozenset[Kind]:
    """The kinds of chunks, and of a family's own structs."""
    return frozenset(str(one.__struct_config__.tag) for one in types)


def checked(annotation: Any, value: Any) -> Any:
    """The arrays of a struct that was read: msgspec's ``dec_hook``. Raises TypeError for any of another dtype."""
    wanted = _dtype(annotation)
    if not isinstance(value, np.ndarray):
        raise TypeError(f"an array is wanted, not {type(value).__name__}")
    if wanted is not None and value.dtype != wanted:
        raise TypeError(f"an array of {wanted} is wanted, not of {value.dtype}")
    return value


@cache
def _dtype(annotation: Any) -> np.dtype[Any] | None:
    """Return the dtype of an ``NDArray[...]``; None means any."""
    (scalar,) = get_args(get_args(annotation)[1])
    return None if scalar is Any else np.dtype(scalar)


OUTPUTS = kinds(*get_args(Output))


def texts(pieces: Iterable[str]) -> Iterator[Text]:
    """An answer's pieces, each where it begins."""
    start = 0
    for piece in pieces:
        yield Text(piece, start)
        start += len(piece)


def bytes_of(value: Any) -> int:
    """Estimate how many bytes a chunk, or a value in one, keeps."""
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
