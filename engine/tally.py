"""What a request has been given, and what its stages left, so that another replica can go on where one was lost.

What is counted does not depend on how it was cut: samples of audio, frames of codes, characters of text (and tokens
that have none), and chunks of the other kinds. What says where it belongs (``meta["at"]``) is passed on again: whoever
eats it knows what they have.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.core import Chunk, StageInfo

Tally = dict[str, int]
_SLICED = frozenset({"audio", "codes", "text"})


def count(tally: Tally, chunk: Chunk) -> None:
    """Note a chunk that was passed on."""
    tally[_key(chunk)] = tally.get(_key(chunk), 0) + _units(chunk)


def fresh(owed: Tally, chunk: Chunk) -> Chunk | None:
    """What of a chunk has not been given before; ``owed`` is what is still to be left out, and shrinks by it."""
    known = owed.get(_key(chunk), 0)
    if known <= 0:
        return chunk
    owed[_key(chunk)] = known - _units(chunk)
    if known >= _units(chunk):
        return None
    return Chunk(chunk.kind, chunk.data[known:], chunk.meta)


class Kept:
    """What the stages of a request left for who goes on: all chunks of the kinds they keep, their latest states.

    Bounded by the request's limits of tokens and frames.
    """

    def __init__(self, stages: Iterable[StageInfo]) -> None:
        self._latest_kinds = frozenset[str]().union(*(info.latest for info in stages))
        self._all: list[Chunk] = []
        self._latest: dict[str, Chunk] = {}

    def note(self, chunk: Chunk) -> None:
        if chunk.kind in self._latest_kinds:
            self._latest[chunk.kind] = chunk
        else:
            self._all.append(chunk)

    def chunks(self) -> tuple[Chunk, ...]:
        return (*self._all, *self._latest.values())


def _key(chunk: Chunk) -> str:
    """How many preliminary ones come before a final one depends on the time; that the final one comes does not."""
    if "at" in chunk.meta:
        return f"{chunk.kind}, placed"
    if _is_mute(chunk):
        return "text, mute"
    return f"{chunk.kind}, final" if chunk.meta.get("final") else chunk.kind


def _units(chunk: Chunk) -> int:
    if "at" in chunk.meta:
        return 0
    return len(chunk.data) if chunk.kind in _SLICED and not _is_mute(chunk) else 1


def _is_mute(chunk: Chunk) -> bool:
    """Whether it is a token of a text that has no characters."""
    return chunk.kind == "text" and not chunk.data
