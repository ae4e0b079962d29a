"""Messages out of fragments: the same as aiortc's own for every order that a network makes, and at a bounded cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiortc.rtcsctptransport import DataChunk, InboundStream
from hypothesis import given
from hypothesis import strategies as st

from app.transports.webrtc import reassembly
from app.transports.webrtc.reassembly import (
    FIRST,
    FRAGMENT_BYTES,
    LAST,
    MAX_MESSAGE_BYTES,
    MAX_WAITING_BYTES,
    UNORDERED,
    QueuedBytes,
    Reassembly,
    TooLarge,
)

START = 0xFFFFFFF0
"""Numbers wrap in every test."""


def fragment(tsn: int, flags: int, data: bytes = b"x", seq: int = 0) -> Any:
    chunk = DataChunk(flags=flags)
    chunk.tsn, chunk.stream_id, chunk.stream_seq, chunk.protocol, chunk.user_data = tsn & 0xFFFFFFFF, 1, seq, 51, data
    return chunk


def fragments(messages: list[tuple[int, bool]]) -> list[Any]:
    """What a sender makes of messages of so many fragments, each in order or not."""
    tsn, seq, all = START, 0xFFFE, list[Any]()
    for count, ordered in messages:
        for n in range(count):
            flags = FIRST * (n == 0) | LAST * (n == count - 1) | UNORDERED * (not ordered)
            all.append(fragment(tsn, flags, bytes([len(all) % 256]), seq & 0xFFFF if ordered else 0))
            tsn += 1
        seq += ordered
    return all


def heard(stream: Any, chunks: list[Any]) -> list[tuple[int, int, bytes]]:
    stream.sequence_number = 0xFFFE
    messages: list[tuple[int, int, bytes]] = []
    for chunk in chunks:
        stream.add_chunk(chunk)
        messages += stream.pop_messages()
    return messages


SENT = st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=8)


@given(SENT.flatmap(lambda messages: st.permutations(fragments(messages))))
def test_in_any_order_they_make_what_aiortc_makes_of_them(chunks: list[Any]) -> None:
    """But that a whole message that needs no order waits for no half one, as it does there."""
    waiting = QueuedBytes()
    ours, theirs = heard(Reassembly(waiting), chunks), heard(InboundStream(), chunks)
    assert sorted(ours) == sorted(theirs)
    firsts = {chunk.user_data for chunk in chunks if not chunk.flags & UNORDERED}
    assert [one for one in ours if one[2][:1] in firsts] == [one for one in theirs if one[2][:1] in firsts]
    assert waiting.bytes == 0


def _take_all(stream: Reassembly, chunks: Iterator[Any], taken: list[int]) -> None:
    for chunk in chunks:
        stream.add_chunk(chunk)
        taken.append(len(chunk.user_data))


@pytest.mark.parametrize("flags", [FIRST | UNORDERED, FIRST, UNORDERED, 0], ids=str)
def test_fragments_that_never_end_are_refused_before_they_are_much(flags: int) -> None:
    """A single one that never ends, or each a beginning; tiny ones count for the room that they take."""
    for size in (1, 1000):
        waiting, taken = QueuedBytes(), list[int]()
        chunks = (fragment(n, flags if n == 0 else flags & ~FIRST, bytes(size), n) for n in range(10_000_000))
        with pytest.raises(TooLarge):
            _take_all(Reassembly(waiting), chunks, taken)
        assert sum(taken) <= MAX_MESSAGE_BYTES
        assert waiting.bytes <= MAX_WAITING_BYTES


def test_messages_whose_turn_never_comes_are_bounded() -> None:
    """The first one in order is missing, the others are whole."""
    stream = Reassembly(QueuedBytes())
    with pytest.raises(TooLarge):
        _take_all(stream, (fragment(n, FIRST | LAST, bytes(100), n + 1) for n in range(30_000)), [])
    assert not list(stream.pop_messages())


def test_the_largest_message_passes_beside_another_one_that_waits() -> None:
    """In fragments of what fits into a datagram, the last one first."""
    stream, size = Reassembly(QueuedBytes()), 1160
    count = MAX_MESSAGE_BYTES // size
    stream.add_chunk(fragment(-9, FIRST, bytes(size)))
    for n in reversed(range(count)):
        flags = FIRST * (n == 0) | LAST * (n == count - 1) | UNORDERED
        stream.add_chunk(fragment(n, flags, bytes(size)))
    assert [len(data) for _, _, data in stream.pop_messages()] == [count * size]


def joins(make: Callable[[int], list[Any]], count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many fragments were moved from one run to another, for so many that came."""
    moved = 0
    joined = reassembly.FragmentRun.joined

    def counted(self: reassembly.FragmentRun, other: reassembly.FragmentRun) -> reassembly.FragmentRun:
        nonlocal moved
        moved += min(len(self.fragments), len(other.fragments))
        return joined(self, other)

    with monkeypatch.context() as patch:
        patch.setattr(reassembly.FragmentRun, "joined", counted)
        stream = Reassembly(QueuedBytes(10**9))
        for chunk in make(count):
            stream.add_chunk(chunk)
            assert not list(stream.pop_messages())
    return moved


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_each_fragment_costs_the_same(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(count: int) -> list[Any]:
        all = [fragment(n, FIRST * (n == 0) | UNORDERED) for n in range(count)]
        return all if order == "forwards" else all[::-1]

    assert joins(endless, 4000, monkeypatch) <= 4000


@given(st.integers(1, 5), st.integers(0, 8), st.booleans())
def test_what_the_sender_gives_up_is_forgotten(count: int, given_up: int, ordered: bool) -> None:
    """Half of a message came; nothing up to a number comes any more. One that may still go on is kept."""
    waiting = QueuedBytes()
    stream = Reassembly(waiting)
    for n in range(count):
        stream.add_chunk(fragment(START + n, FIRST * (n == 0) | UNORDERED * (not ordered)))
    lost = stream.prune_chunks(START + given_up & 0xFFFFFFFF)
    assert lost == (count if given_up >= count else 0)
    assert waiting.bytes == (count - lost) * (1 + FRAGMENT_BYTES)
    stream.add_chunk(fragment(START + count, LAST | UNORDERED * (not ordered)))
    assert len(list(stream.pop_messages())) == (0 if lost else 1)


def test_messages_behind_one_that_was_given_up_are_told() -> None:
    stream = Reassembly(QueuedBytes())
    for n in (1, 3):
        stream.add_chunk(fragment(n, FIRST | LAST, bytes([n]), n))
    assert not list(stream.pop_messages())
    stream.sequence_number = 3
    assert [data for _, _, data in stream.pop_messages()] == [b"\1", b"\3"]
