"""What crosses between processes, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from engine.chunk import Bundle, Checkpoint, Tensors, Text, ToolCall, ToolCallDelta, Transcript, Usage
from engine.core import AudioPart, Facets, Message, Request, StageInfo, TextPart, Voice
from engine.errors import WireError
from engine.ipc import links
from engine.ipc import messages as wire
from tests.engine.fakes import data_of, request, turns, until, x

DTYPES = ["<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "|u1", "|i1", "|b1"]
arrays = st.sampled_from(DTYPES).flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0)))
texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | texts
values = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=8)
ids = st.lists(st.integers(0, 1 << 20), max_size=3).map(tuple)
chunks = (
    st.builds(Text, texts, st.integers(0, 9), ids)
    | st.builds(Transcript, texts, st.booleans(), st.booleans(), st.booleans(), st.none() | st.booleans())
    | st.builds(ToolCallDelta, texts, texts, texts)
    | st.builds(ToolCall, texts, texts, texts, ids)
    | st.builds(Usage, *[st.integers(0, 99)] * 5, st.sampled_from(["stop", "length", "tool"]), ids)
    | st.builds(Tensors, texts, st.dictionaries(texts, values), st.booleans())
    | st.builds(Checkpoint, st.dictionaries(texts, values), texts, st.dictionaries(texts, st.integers(0, 9)))
    | st.builds(Bundle, st.dictionaries(texts, st.lists(st.builds(Text, texts, st.just(0))).map(tuple)))
)
messages = (
    st.builds(wire.Feed, texts, chunks)
    | st.builds(wire.Emit, texts, chunks, st.booleans(), st.booleans())
    | st.builds(wire.Grant, texts, st.integers(0, 1000))
    | st.builds(wire.Failed, texts, texts, texts)
    | st.builds(wire.End, texts)
    | st.builds(wire.Close, texts)
    | st.builds(wire.Prepare, texts, texts, st.builds(request, texts))
    | st.builds(wire.PlayoutUpdate, texts, st.sampled_from(["held", "due", "playing"]))
    | st.builds(wire.Blocking, texts, st.floats(0, 100))
    | st.just(wire.Stop())
)


def crossed(message: wire.Message) -> wire.Message:
    return wire.decode(wire.encode(message)[4:])


def grant() -> bytes:
    return wire.encode(wire.Grant("r", 1))


@given(arrays)
def test_arrays_of_every_allowed_dtype_arrive_as_they_left(array: NDArray[Any]) -> None:
    message = crossed(wire.Feed("r", x(array)))
    assert isinstance(message, wire.Feed)
    assert data_of(message.chunk).dtype == array.dtype
    assert data_of(message.chunk).shape == array.shape
    assert data_of(message.chunk).tobytes() == array.tobytes()


def test_a_view_arrives_as_what_it_shows() -> None:
    message = crossed(wire.Feed("r", x(np.arange(12).reshape(3, 4).T[::2])))
    assert isinstance(message, wire.Feed)
    assert data_of(message.chunk).tolist() == np.arange(12).reshape(3, 4).T[::2].tolist()


@pytest.mark.parametrize("dtype", ["c8", "O", "U3", ">i2", "m8[s]", "u4"])
def test_an_array_of_another_dtype_is_refused(dtype: str) -> None:
    with pytest.raises(WireError, match="cannot be sent"):
        wire.encode(wire.Feed("r", x(np.zeros(2, dtype))))


@pytest.mark.parametrize("data", [object(), {1: object()}, "\ud800", 1 << 70, np.float32(1)])
def test_what_has_no_place_on_the_wire_is_refused(data: Any) -> None:
    with pytest.raises(WireError) as caught:
        wire.encode(wire.Feed("r", x(data)))
    str(caught.value).encode()


@given(messages)
def test_messages_arrive_as_they_left(message: wire.Message) -> None:
    assert crossed(message) == message


def test_hello_and_open_arrive_as_they_left() -> None:
    stage = StageInfo(name="a", order=1, emits=frozenset({"text"}), facets=Facets(voices=(Voice("v", "V"),)))
    hello = wire.Hello("w", 1, (stage,))
    assert crossed(hello) == hello
    parts = (AudioPart(np.zeros(3, np.int16)), TextPart("hi"))
    opened = wire.Open("r", Request(id="r", session="s", messages=(Message("user", parts),)), ("a", "b"), 64)
    arrived = crossed(opened)
    assert isinstance(arrived, wire.Open)
    assert arrived.request.messages[0].parts[1] == TextPart("hi")
    assert arrived.stages == ("a", "b")


@pytest.mark.seed("A4.4")
@given(st.lists(messages, max_size=8), st.data())
def test_however_the_bytes_are_cut_the_messages_are_the_same(sent: list[wire.Message], data: st.DataObject) -> None:
    stream = b"".join(map(wire.encode, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    splitter, got = wire.Splitter(), list[wire.Message]()
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += splitter.feed(stream[begin:end])
    assert got == sent


@given(st.binary(max_size=200))
@pytest.mark.fault("S3.1")
def test_garbage_is_a_wire_error_or_a_message(garbage: bytes) -> None:
    try:
        message = wire.decode(garbage)
    except WireError:
        return
    wire.encode(message)


@given(messages, st.data())
@pytest.mark.fault("S3.1")
def test_a_damaged_frame_is_a_wire_error_or_a_message(message: wire.Message, data: st.DataObject) -> None:
    body = bytearray(wire.encode(message)[4:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        wire.decode(body)


@given(st.binary(max_size=60))
def test_a_malformed_array_is_a_wire_error(body: bytes) -> None:
    frame = {"t": "feed", "run": "r", "chunk": ["x", msgspec.msgpack.Ext(1, body), {}]}
    with contextlib.suppress(WireError):
        wire.decode(msgspec.msgpack.encode(frame))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x80",
        msgspec.msgpack.encode({"t": "feed", "run": "r"}),
        msgspec.msgpack.encode({"t": "stop", "more": 1}),
        msgspec.msgpack.encode({"t": "grant", "run": "r", "n": "1"}),
        msgspec.msgpack.encode({"t": "nobody"}),
        msgspec.msgpack.encode({"t": "feed", "run": "r", "chunk": ["x", msgspec.msgpack.Ext(9, b""), {}]}),
        msgspec.msgpack.encode({"t": "feed", "run": "r", "chunk": ["x", msgspec.msgpack.Ext(1, b""), {}]}),
        b"\x83\xa1t\xa4feed\xa3run\xa1r\xa5chunk\x93\xa1x" + b"\x91" * 5000,
        b"\x83\xa1t\xa4feed\xa3run\xa1r\xa5chunk\x93\xa1x\xdd\xff\xff\xff\xff",
        b"\x83\xa1t\xa4feed\xa3run\xa1r\xa5chunk\x93\xa1x\xc6\xff\xff\xff\xff",
    ],
)
@pytest.mark.seed("A2.21", "A4.20")
def test_malformed_frames_are_wire_errors(frame: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode(frame)


def test_a_frame_over_the_limit_is_refused_before_it_is_there() -> None:
    with pytest.raises(WireError, match="limit"):
        list(wire.Splitter().feed(struct.pack(">I", wire.MAX_FRAME_BYTES + 1)))


@settings(max_examples=20)
@given(st.integers(1, 5000))
def test_many_frames_at_once_take_linear_time(n: int) -> None:
    assert len(list(wire.Splitter().feed(grant() * n))) == n


class End:
    """What one end of a link has met."""

    def __init__(self) -> None:
        self.got: list[wire.Message] = []
        self.losses = 0

    def lost(self) -> None:
        self.losses += 1


async def socket_link(end: End) -> tuple[links.SocketLink, socket.socket]:
    ours, theirs = socket.socketpair()
    link = links.SocketLink(end.got.append, end.lost)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    return link, theirs


@pytest.mark.seed("A1.7")
async def test_a_socket_link_carries_messages_in_order() -> None:
    left, right = End(), End()
    link, sock = await socket_link(left)
    other = links.SocketLink(right.got.append, right.lost)
    await asyncio.get_running_loop().create_connection(lambda: other, sock=sock)
    sent: list[wire.Message] = [wire.Grant("r", n) for n in range(100)]
    for message in sent:
        link.send(message)
    link.close()  # what was sent before arrives all the same
    link.close()
    await until(lambda: right.losses == 1)
    assert right.got == sent
    await turns()
    assert (left.losses, right.losses) == (1, 1)
    link.send(wire.Stop())  # nobody is there: no error
    other.send(wire.Stop())


async def test_new_requests_of_one_turn_leave_together_and_all_else_at_once() -> None:
    link, sock = await socket_link(End())
    with sock:
        sock.setblocking(False)
        link.send(wire.Grant("r", 1))
        assert sock.recv(1 << 16) == grant()
        await turns()
        opening = [wire.Open(run, request(), ("a",), 64) for run in ("r", "s")]
        for message in opening:
            link.send(message)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
        await turns()
        assert list(wire.Splitter().feed(sock.recv(1 << 16))) == opening
    link.close()
    await turns()


@pytest.mark.seed("A4.10")
async def test_sending_to_who_reads_nothing_waits_for_nobody() -> None:
    """What a step emits while the other end stands still is taken at once, and arrives when that reads again."""
    left, right = End(), End()
    link, sock = await socket_link(left)
    sent = [wire.Emit("r", x(np.full(50_000, n, np.float32)), True, True) for n in range(wire.CREDIT)]
    for message in sent:
        link.send(message)  # far more than the socket holds; there is no await, and no other end yet
    other = links.SocketLink(right.got.append, right.lost)
    await asyncio.get_running_loop().create_connection(lambda: other, sock=sock)
    await until(lambda: len(right.got) == len(sent))
    assert [int(data_of(message.chunk)[0]) for message in right.got if isinstance(message, wire.Emit)] == list(
        range(64)
    )
    link.close()
    await until(lambda: right.losses == 1)


def asleep_s() -> float:
    """Seconds in which this thread neither ran nor waited for a processor, but for an offset. A busy machine adds
    nothing to it; a call that blocks does."""
    ran_ns, queued_ns, _ = map(int, Path("/proc/thread-self/schedstat").read_text().split())
    return time.monotonic() - (ran_ns + queued_ns) / 1e9


@pytest.mark.seed("A4.10")
@pytest.mark.parametrize("near", [False, True], ids=["by copy", "by reference"])
async def test_a_step_that_sends_to_who_reads_nothing_never_sleeps(near: bool) -> None:
    """All that a request may have under way, for a socket that is full after the first chunk."""
    ours, theirs = socket.socketpair()
    end = End()
    link = links.SocketLink(end.got.append, end.lost, near)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=ours)
    before_s = asleep_s()
    for n in range(wire.CREDIT):
        link.send(wire.Emit("r", x(np.full(50_000, n, np.float32)), True, True))
    link._flush()
    assert asleep_s() - before_s < 1
    link.abort()
    theirs.close()
    await until(lambda: end.losses == 1)


@pytest.mark.parametrize("garbage", [b"\xff" * 8, struct.pack(">I", 3) + b"\xc1\xc1\xc1", struct.pack(">I", 0)])
@pytest.mark.fault("S3.1")
async def test_garbage_closes_the_link_once_and_what_came_before_counts(garbage: bytes) -> None:
    end = End()
    link, sock = await socket_link(end)
    with sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(sock, grant() + garbage + grant())
        await until(lambda: end.losses == 1)
        assert end.got == [wire.Grant("r", 1)]
        link.send(wire.Stop())


async def test_local_links_carry_messages_in_order_and_end_once() -> None:
    left, right = End(), End()
    one, two = links.local_pair((left.got.append, left.lost), (right.got.append, right.lost))
    one.send(wire.Grant("r", 1))
    one.send(wire.Stop())
    one.close()
    two.close()
    two.send(wire.Stop())
    await turns()
    assert right.got == [wire.Grant("r", 1), wire.Stop()]
    assert (left.losses, right.losses, left.got) == (1, 1, [])
