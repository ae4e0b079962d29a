"""The schema'd frames that cross between the server's process and a worker's. No pickle anywhere.

A frame is a 4-byte big-endian length and one msgpack message of the union below. Arrays travel as an extension type
(dtype, shape, bytes); dtypes are an allow-list. Bytes that do not decode are a WireError, and the connection that
brought them is closed. Knows no worker and no engine, only what they say to each other.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import Any, Literal, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk, checked
from engine.core import Remembered, Request, StageInfo
from engine.deployment.config import ChunkSpec, StageSpec, WorkerSpec
from engine.errors import WireError
from engine.ipc.shared_memory import SharedMemory, read_shared

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 256 << 20  # a minute of 4k video frames fits; a lying length does not take the memory
CREDIT = 64  # chunks of a run under way each way: about as many as lie between two stages of a worker
GRANT = 16  # credit goes back in such pieces: a message for every chunk would cost as much as the chunk
_ARRAY, _SHARED = 1, 2  # msgpack extension codes: an array's bytes; where it lies
_DTYPES = frozenset({"<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "|u1", "|i1", "|b1"})
_HEADER = struct.Struct(">I")


PlayoutState = Literal["held", "due", "playing"]
"""An answer to a turn that may not be over is ``held``: nobody hears it yet. It is ``due`` once the turn is over, and
``playing`` from the listener's first sample on."""


class Frame(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="t"):
    """Base of every message. (Frozen is said again by each: type checkers do not inherit it.)"""


class Resume(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counts of what a lost replica had given of a request. The successor leaves that out: to the client, and to the
    next hop.

    ``playing_s`` is how long the listener has heard it, None before they begin. ``kept`` is what the stages
    checkpointed, in that order. ``alone``: this request may be what broke the replica, so it steps with no other.
    """

    client: dict[str, int]
    onward: dict[str, int]
    playing_s: float | None
    kept: tuple[Chunk, ...] = ()
    alone: bool = False


class Open(Frame, frozen=True, tag="open"):
    """Server to worker: run these stages, in their order, for a request. ``credit`` chunks may go out unanswered."""

    run: str
    request: Request
    stages: tuple[str, ...]
    credit: int
    playout: PlayoutState | None = None
    resume: Resume | None = None


class Feed(Frame, frozen=True, tag="feed"):
    """Server to worker: the next chunk of the first stage's input."""

    run: str
    chunk: Chunk


class End(Frame, frozen=True, tag="end"):
    """Server to worker: the input has ended. Worker to server: the last stage's output has."""

    run: str


class Emit(Frame, frozen=True, tag="emit", omit_defaults=True):
    """Worker to server: a chunk for the client, for the next hop, or for both.

    ``kept`` is what stages checkpointed since, in case this worker is lost; it goes to neither. ``marks`` are
    moments since the last one (monotonic seconds): a message of their own would wake the server for each.
    """

    run: str
    chunk: Chunk
    client: bool
    onward: bool
    kept: tuple[Chunk, ...] = ()
    marks: dict[str, float] = {}


class Marks(Frame, frozen=True, tag="marks"):
    """Worker to server: moments of a run (monotonic seconds) that must not wait for the next chunk; they cost no
    credit."""

    run: str
    marks: dict[str, float]


class Grant(Frame, frozen=True, tag="grant"):
    """Server to worker: the reader has taken ``n`` chunks. Worker to server: the first stage has taken ``n`` fed
    ones."""

    run: str
    n: int


class Failed(Frame, frozen=True, tag="failed"):
    """Worker to server: this run broke; nothing more of it follows."""

    run: str
    code: str
    message: str


class Trying(Frame, frozen=True, tag="trying"):
    """Worker to server: from here on, until the next of these, the worker does something for these runs for the first
    time.

    If it is lost meanwhile, one of them may be why.
    """

    runs: tuple[str, ...]


class Blocking(Frame, frozen=True, tag="blocking"):
    """Worker to server: a step of a blocking stage begins, which may take ``most_s`` seconds; 0: it has returned."""

    stage: str
    most_s: float


class Prepare(Frame, frozen=True, tag="prepare"):
    """Server to worker: have a stage warm up what is known of a prompt, while the user still speaks.

    It takes no slot, nobody waits for it, and nothing is answered. The session's next one takes its place.
    """

    run: str
    stage: str
    request: Request


class Close(Frame, frozen=True, tag="close"):
    """Server to worker: forget the run, or what is prepared under that id, wherever it is. The server ignores answers
    to it that are still under way."""

    run: str


class PlayoutUpdate(Frame, frozen=True, tag="playout"):
    """Server to worker: what becomes of the sound that a run makes; ``skipped_s`` of its beginning are not played."""

    run: str
    state: PlayoutState
    skipped_s: float = 0.0


class Hello(Frame, frozen=True, tag="hello"):
    """The worker's first word, once every stage is loaded and warm."""

    worker: str
    pid: int
    stages: tuple[StageInfo, ...]


class Refused(Frame, frozen=True, tag="refused"):
    """The worker's first and last word when it could not start."""

    code: str
    message: str


class Beat(Frame, frozen=True, tag="beat"):
    """Worker to server, every ``Task.beat_s``: the worker lives, and this is how it gets on.

    ``worker`` is the id it was given, which names its incarnation too. ``steps`` counts the steps it has made,
    ``queues`` the requests of each stage that could step now, ``step_s`` how long a step of each stage takes.
    """

    worker: str
    steps: int
    queues: dict[str, int]
    step_s: dict[str, float]
    at_s: float | None = None
    """The worker's monotonic clock, which on another machine is another."""
    remembered: dict[str, Remembered] = {}
    """Prefixes that its stages keep, by the stage's name."""
    unavailable: dict[str, str] = {}
    """The stages that cannot be had for now, and why, as sentences."""
    moving: tuple[str, ...] = ()
    """The runs of which a stage is in a step, or will step when its turn comes: they wait for nobody but the worker."""


class Join(Frame, frozen=True, tag="join"):
    """The first word of a worker that came over the network: what it offers to host, and where.

    ``key`` names the place it wants to fill: the one it was started for, or one of its own choice, by which it gets
    the same place again when it comes back.
    """

    key: str
    stages: tuple[str, ...]
    device: str
    address: str


class Leave(Frame, frozen=True, tag="leave"):
    """Worker to server: give me nothing more, and let me go when what I have is done."""


class Mapped(Frame, frozen=True, tag="mapped"):
    """Either way, about the link itself: which shared arrays have been copied, and may be released."""

    files: tuple[int, ...]


class Stop(Frame, frozen=True, tag="stop"):
    """Server to worker: exit."""


class Task(Frame, frozen=True, tag="task"):
    """Server to a new worker, first of all: what to load, and where. ``id`` is its name and its incarnation.

    ``stages`` is the whole pipeline, in its order; the worker hosts those that its spec names.
    """

    id: str
    stages: tuple[StageSpec, ...]
    worker: WorkerSpec
    device: str
    chunks: ChunkSpec
    beat_s: float


Message = (
    Open
    | Prepare
    | Feed
    | End
    | Emit
    | Marks
    | Grant
    | Failed
    | Trying
    | Close
    | PlayoutUpdate  # a run's
    | Task
    | Hello
    | Refused
    | Beat
    | Blocking
    | Join
    | Leave
    | Mapped
    | Stop  # a worker's
)


class MessageCodec:
    """Messages to frames and back. With ``shared`` memory large arrays go by reference: between two processes of one
    machine only. ``mapped`` are the files that the other end may release.
    """

    def __init__(self, shared: SharedMemory | None = None) -> None:
        self._shared = shared
        self.mapped: list[int] = []
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._pack)
        self._decoder = msgspec.msgpack.Decoder(Message, ext_hook=self._unpack, dec_hook=checked)

    def encode(self, message: Message) -> bytes:
        """A whole frame, length first. Raises WireError for what has no place on the wire, like a lone surrogate."""
        try:
            body = self._encoder.encode(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise WireError(f"a message cannot cross between processes: {error!a}") from None
        if len(body) > MAX_FRAME_BYTES:
            raise WireError(f"a message of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}")
        return _HEADER.pack(len(body)) + body

    def decode(self, body: bytes | bytearray | memoryview) -> Message:
        """The message of a frame's body (without the length)."""
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError) as error:
            raise WireError(f"a malformed frame: {error}") from None

    def _pack(self, value: Any) -> msgspec.msgpack.Ext:
        if not isinstance(value, np.ndarray):
            raise WireError(f"a {type(value).__name__} cannot cross between processes")
        array = cast("NDArray[Any]", value)
        if array.dtype.str not in _DTYPES:
            raise WireError(f"an array of {array.dtype} cannot cross between processes")
        if self._shared is not None and (where := self._shared.share(array)):
            return msgspec.msgpack.Ext(_SHARED, msgspec.msgpack.encode((array.dtype.str, array.shape, *where)))
        head = msgspec.msgpack.encode((array.dtype.str, array.shape))
        return msgspec.msgpack.Ext(_ARRAY, bytes((len(head),)) + head + array.tobytes())

    def _unpack(self, code: int, data: memoryview) -> Any:
        try:
            if code == _ARRAY:
                return _array(data)
            if code == _SHARED and self._shared is not None:
                return self._read_shared(data)
            raise WireError(f"unknown extension type {code}")
        except (IndexError, ValueError, OverflowError, msgspec.DecodeError) as error:
            raise WireError(f"a malformed array: {error}") from None

    def _read_shared(self, data: memoryview) -> NDArray[Any]:
        dtype, shape, process, file = msgspec.msgpack.decode(data, type=tuple[str, tuple[int, ...], int, int])
        array = read_shared(process, file, _known(dtype), shape)
        self.mapped.append(file)
        return array


def _array(data: memoryview) -> NDArray[Any]:
    body = 1 + data[0]
    dtype, shape = msgspec.msgpack.decode(data[1:body], type=tuple[str, tuple[int, ...]])
    return np.frombuffer(data[body:], _known(dtype)).reshape(shape)


def _known(dtype: str) -> str:
    if dtype not in _DTYPES:
        raise WireError(f"an array of {dtype!r} is not accepted")
    return dtype


_PLAIN = MessageCodec()
encode, decode = _PLAIN.encode, _PLAIN.decode


class Splitter:
    """Bytes in, messages out; sans I/O."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES, codec: MessageCodec = _PLAIN) -> None:
        self._bytes = bytearray()
        self._max_bytes = max_bytes
        self._codec = codec

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete by now. Raises WireError where the bytes stop making sense."""
        self._bytes += data
        while len(self._bytes) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._bytes)
            if length > self._max_bytes:
                raise WireError(f"a frame of {length} bytes is over the limit of {self._max_bytes}")
            end = _HEADER.size + length
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[_HEADER.size : end])
            del self._bytes[:end]
            yield self._codec.decode(body)
