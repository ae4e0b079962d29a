"""The messages between the server's process and a worker's. No pickle anywhere.

A frame is a 4-byte big-endian length and one msgpack message of the union below. Arrays travel as an extension type
(dtype, shape, bytes), and only listed dtypes are accepted. Bytes that cannot be decoded raise a WireError, and their
connection is closed.
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
from engine.core import DuplexCounts, Remembered, Request, StageInfo
from engine.deployment.config import ChunkSpec, StageSpec, WorkerSpec
from engine.errors import WireError
from engine.ipc.shared_memory import SharedMemory, read_shared

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 256 << 20  # enough for a minute of 4k video frames; stops a false length from filling the memory
CREDIT = 64  # unacknowledged chunks of a run in each direction: about what two stages of a worker buffer between them
GRANT = 16  # chunks acknowledged by one message: one message per chunk would double the traffic
_ARRAY, _SHARED = 1, 2  # msgpack extension codes: an array's bytes; its place in shared memory
_DTYPES = frozenset({"<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "|u1", "|i1", "|b1"})
_HEADER = struct.Struct(">I")


PlayoutState = Literal["held", "due", "playing"]
"""The playback state of an answer.

- ``held``: the user may go on speaking, so the answer is not played yet.
- ``due``: the user's turn is over, and the answer is awaited.
- ``playing``: the listener hears it.
"""


class Frame(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="t"):
    """Base of every message. (Each subclass repeats ``frozen``: type checkers do not inherit it.)"""


class Resume(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The progress of a request on a lost replica. The new replica leaves out the counted chunks."""

    client: dict[str, int]
    """Counts of what the client has received."""
    onward: dict[str, int]
    """Counts of what the next hop has received."""
    playing_s: float | None
    """Seconds for which the answer has been playing; None before playback."""
    kept: tuple[Chunk, ...] = ()
    """The chunks that the stages checkpointed, in order."""
    alone: bool = False
    """Whether the request must step alone, because it may have caused the loss."""


class Open(Frame, frozen=True, tag="open"):
    """Server to worker: run these stages, in this order, for a request."""

    run: str
    request: Request
    stages: tuple[str, ...]
    credit: int
    """Maximum number of unacknowledged chunks that the worker may send."""
    playout: PlayoutState | None = None
    resume: Resume | None = None


class Feed(Frame, frozen=True, tag="feed"):
    """Server to worker: the next chunk of the first stage's input."""

    run: str
    chunk: Chunk


class End(Frame, frozen=True, tag="end"):
    """Server to worker: the input has ended. Worker to server: the last stage's output has ended."""

    run: str


class Emit(Frame, frozen=True, tag="emit", omit_defaults=True):
    """Worker to server: a chunk for the client, for the next hop, or for both."""

    run: str
    chunk: Chunk
    client: bool
    """Whether the chunk goes to the client."""
    onward: bool
    """Whether the chunk goes to the next hop."""
    kept: tuple[Chunk, ...] = ()
    """Chunks that stages checkpointed since the last message. They are used only if this worker is lost."""
    marks: dict[str, float] = {}
    """Timeline events since the last message, as monotonic seconds by name. They need no message of their own."""


class Marks(Frame, frozen=True, tag="marks"):
    """Worker to server: events of a run (monotonic seconds by name) that cannot wait for the next chunk. They cost no
    credit.
    """

    run: str
    marks: dict[str, float]


class Grant(Frame, frozen=True, tag="grant"):
    """Server to worker: ``n`` chunks have been read. Worker to server: the first stage has read ``n`` input chunks."""

    run: str
    n: int


class Failed(Frame, frozen=True, tag="failed"):
    """Worker to server: this run failed. It is the last message of the run."""

    run: str
    code: str
    message: str


class Trying(Frame, frozen=True, tag="trying"):
    """Worker to server: the worker now does something for these runs for the first time, until the next such message.

    If the worker is lost meanwhile, one of these runs may be the cause.
    """

    runs: tuple[str, ...]


class Blocking(Frame, frozen=True, tag="blocking"):
    """Worker to server: a step of a blocking stage begins."""

    stage: str
    most_s: float
    """Maximum seconds that the step may take; 0: the step has returned."""


class Prepare(Frame, frozen=True, tag="prepare"):
    """Server to worker: warm up a stage for the known part of a prompt while the user still speaks.

    It takes no slot and gets no answer. A session's newer Prepare replaces its older one.
    """

    run: str
    stage: str
    request: Request


class Close(Frame, frozen=True, tag="close"):
    """Server to worker: end the run, or the preparation, of this id. The server ignores messages of it that are
    under way.
    """

    run: str


class PlayoutUpdate(Frame, frozen=True, tag="playout"):
    """Server to worker: the playback state of a run's audio changed."""

    run: str
    state: PlayoutState
    skipped_s: float = 0.0
    """Seconds of silence at the beginning of the audio that are not played."""


class Hello(Frame, frozen=True, tag="hello"):
    """Worker to server: every stage is loaded and warm. It is the first message of a worker."""

    worker: str
    pid: int
    stages: tuple[StageInfo, ...]


class Refused(Frame, frozen=True, tag="refused"):
    """Worker to server: the worker could not start, for this reason. It is its first and last message."""

    code: str
    message: str


class Beat(Frame, frozen=True, tag="beat"):
    """Worker to server: a heartbeat, every ``Task.beat_s`` seconds."""

    worker: str
    """The worker's id, which contains the number of its incarnation."""
    steps: int
    """Steps since the worker started."""
    queues: dict[str, int]
    """For each stage, the number of requests that are ready to step."""
    step_s: dict[str, float]
    """For each stage, the duration of a step in seconds."""
    at_s: float | None = None
    """The time of the worker's monotonic clock, which differs on another machine."""
    remembered: dict[str, Remembered] = {}
    """Counts of the prefix caches of its stages, by the stage's name."""
    unavailable: dict[str, str] = {}
    """The stages that are temporarily unavailable, each with the reason as a sentence."""
    moving: tuple[str, ...] = ()
    """The runs with a stage that is in a step or ready to step, so that they wait only for this worker."""
    duplex: dict[str, DuplexCounts] = {}
    """Counts of the frames of its duplex stages, by the stage's name."""


class Join(Frame, frozen=True, tag="join"):
    """A worker's first message over the network: the stages that it offers to host, and its device."""

    key: str
    """Identifies the worker across connections: a worker that joins again with the same key gets the same name."""
    stages: tuple[str, ...]
    device: str
    address: str


class Leave(Frame, frozen=True, tag="leave"):
    """Worker to server: send no new requests, and let the worker go once its current ones are done."""


class Mapped(Frame, frozen=True, tag="mapped"):
    """Either direction, about the link itself: these shared arrays have been copied and may be released."""

    files: tuple[int, ...]


class Stop(Frame, frozen=True, tag="stop"):
    """Server to worker: exit."""


class Task(Frame, frozen=True, tag="task"):
    """Server to worker, first message: the stages to load, and their device."""

    id: str
    """The worker's name and the number of its incarnation."""
    stages: tuple[StageSpec, ...]
    """The whole pipeline, in order. The worker hosts the stages that its spec names."""
    worker: WorkerSpec
    device: str
    chunks: ChunkSpec
    beat_s: float
    """Seconds between two heartbeats."""


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
    | PlayoutUpdate
    | Task
    | Hello
    | Refused
    | Beat
    | Blocking
    | Join
    | Leave
    | Mapped
    | Stop
)


class MessageCodec:
    """Encodes messages to frames and decodes them.

    With ``shared`` memory, for two processes on one machine, large arrays are passed by reference. ``mapped`` lists the
    files that were read, so that the other end may release them.
    """

    def __init__(self, shared: SharedMemory | None = None) -> None:
        self._shared = shared
        self.mapped: list[int] = []
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._pack)
        self._decoder = msgspec.msgpack.Decoder(Message, ext_hook=self._unpack, dec_hook=checked)

    def encode(self, message: Message) -> bytes:
        """Return a whole frame, including its length.

        Raises:
            WireError: The message contains a value that cannot be encoded, such as a lone surrogate, or is too long.
        """
        try:
            body = self._encoder.encode(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise WireError(f"a message cannot be encoded: {error!a}") from None
        if len(body) > MAX_FRAME_BYTES:
            raise WireError(f"a message of {len(body)} bytes is over the limit of {MAX_FRAME_BYTES}")
        return _HEADER.pack(len(body)) + body

    def decode(self, body: bytes | bytearray | memoryview) -> Message:
        """Decode the body of a frame (without its length). Raises WireError if it is malformed."""
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError) as error:
            raise WireError(f"malformed frame: {error}") from None

    def _pack(self, value: Any) -> msgspec.msgpack.Ext:
        if not isinstance(value, np.ndarray):
            raise WireError(f"values of type {type(value).__name__} cannot be sent between processes")
        array = cast("NDArray[Any]", value)
        if array.dtype.str not in _DTYPES:
            raise WireError(f"arrays of {array.dtype} cannot be sent between processes")
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
            raise WireError(f"malformed array: {error}") from None

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
        raise WireError(f"arrays of {dtype!r} are not accepted")
    return dtype


_PLAIN = MessageCodec()
encode, decode = _PLAIN.encode, _PLAIN.decode


class Splitter:
    """Splits a stream of bytes into messages. Sans I/O."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES, codec: MessageCodec = _PLAIN) -> None:
        self._bytes = bytearray()
        self._max_bytes = max_bytes
        self._codec = codec

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are now complete. Raises WireError if a frame is too long or malformed."""
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
