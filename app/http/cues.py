"""A transcript in pieces that can be read at once, by when its words were said: a sentence, or what fits two lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from engine import Word

LONGEST_S, MOST_CHARACTERS = 7.0, 84
"""The longest subtitle in seconds and in characters: two lines of 42, as broadcasters have it."""
PAUSE_S = 1.0
"""Seconds of silence behind which another subtitle begins."""
_ENDS = (".", "?", "!", "…", "。", "？", "！")


@dataclass(frozen=True, slots=True)
class Cue:
    """A piece of the text, and when it was said. ``logprob`` is a word's logarithm of its probability, on average."""

    start_s: float
    end_s: float
    text: str
    logprob: float | None = None


def cues(text: str, words: Sequence[Word]) -> list[Cue]:
    """The text's pieces; none where no word tells its time. Words stand as the text has them, spaces and all."""
    made: list[Cue] = []
    at = 0
    for piece in _pieces(words):
        ends = at
        for word in piece:
            ends += max(text[ends:].find(word.text), 0) + len(word.text)
        likely = [word.logprob for word in piece if word.logprob is not None]
        logprob = fmean(likely) if len(likely) == len(piece) else None
        end_s = max(piece[0].start_s, piece[-1].end_s)
        made.append(Cue(piece[0].start_s, end_s, text[at:ends].strip(), logprob))
        at = ends
    return made


def _pieces(words: Sequence[Word]) -> Iterator[list[Word]]:
    piece: list[Word] = []
    for word in words:
        if piece and _is_over(piece, word):
            yield piece
            piece = []
        piece.append(word)
    if piece:
        yield piece


def _is_over(piece: Sequence[Word], word: Word) -> bool:
    """Whether another piece begins with a word."""
    characters = sum(len(one.text) + 1 for one in piece) + len(word.text)
    return (
        piece[-1].text.endswith(_ENDS)
        or word.start_s - piece[-1].end_s > PAUSE_S
        or word.end_s - piece[0].start_s > LONGEST_S
        or characters > MOST_CHARACTERS
    )
