"""Split a transcript with word times into subtitles: one sentence each, or as much as fits two lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from engine import Word

LONGEST_S, MOST_CHARACTERS = 7.0, 84
"""Maximum length of a subtitle in seconds and in characters: two lines of 42, as broadcasters use."""
PAUSE_S = 1.0
"""Seconds of silence that start a new subtitle."""
_ENDS = (".", "?", "!", "…", "。", "？", "！")


@dataclass(frozen=True, slots=True)
class Cue:
    """One subtitle with its times. ``logprob`` is the mean log probability of its words."""

    start_s: float
    end_s: float
    text: str
    logprob: float | None = None


def cues(text: str, words: Sequence[Word]) -> list[Cue]:
    """Return the subtitles of a text, or none if its words have no times.

    Words include their spaces, as in the text.
    """
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
    """Return whether a word starts a new subtitle."""
    characters = sum(len(one.text) + 1 for one in piece) + len(word.text)
    return (
        piece[-1].text.endswith(_ENDS)
        or word.start_s - piece[-1].end_s > PAUSE_S
        or word.end_s - piece[0].start_s > LONGEST_S
        or characters > MOST_CHARACTERS
    )
