"""Computes word times and probabilities from the tokens that recognition libraries return with a text.

Networks mark word boundaries differently: a space before a word, ``@@`` for a continuation, or nothing between Chinese
characters. So the tokens are aligned with the text. If they do not match it, no word gets a time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.chunk import Word

TOKEN_S = 0.25
"""Maximum duration of a token in seconds, if the network does not report it."""
_NO_SPACES = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")  # Chinese, Japanese, Korean


@dataclass(frozen=True, slots=True)
class WordTimes:
    """A transcript with the times of its words."""

    text: str
    words: tuple[Word, ...] = ()
    """Words with times in seconds from the clip's first sample; empty if the model reports no times."""
    language: str = ""
    """The detected language, as BCP 47; empty if the model detects none."""

    def lower(self) -> WordTimes:
        """Return a copy in lower case."""
        words = (Word(word.text.lower(), word.start_s, word.end_s, word.logprob) for word in self.words)
        return WordTimes(self.text.lower(), tuple(words), self.language)

    def after(self, other: WordTimes, offset_s: float) -> WordTimes:
        """Return ``other`` followed by this transcript, whose times are shifted by ``offset_s``.

        The result has no times if either part has text without times.
        """
        moved = tuple(
            Word(word.text, _round(word.start_s + offset_s), _round(word.end_s + offset_s), word.logprob)
            for word in self.words
        )
        timed = bool(self.words or not self.text) and bool(other.words or not other.text)
        words = (*other.words, *moved) if timed else ()
        return WordTimes(joined(other.text, self.text), words, self.language or other.language)


NOTHING = WordTimes("")


def joined(first: str, second: str) -> str:
    """Join two texts, with a space unless Chinese, Japanese or Korean characters meet."""
    apart = bool(first and second) and not (_NO_SPACES.match(first[-1]) and _NO_SPACES.match(second[0]))
    return f"{first} {second}" if apart else first + second


def words_of(
    text: str,
    tokens: Sequence[str],
    starts_s: Sequence[float],
    durations_s: Sequence[float] = (),
    logprobs: Sequence[float] = (),
) -> tuple[Word, ...]:
    """Return the words of a text with their times, aligned from its tokens.

    Args:
        text: The transcript.
        tokens: Its tokens in order.
        starts_s: Start of each token in seconds.
        durations_s: Duration of each token; estimated if absent.
        logprobs: Log-probability of each token, if known.

    Returns:
        The words, or () if the tokens have no times or do not make up the text.
    """
    if not tokens or len(starts_s) != len(tokens):
        return ()
    ends_s = _ends_s(starts_s, durations_s)
    likely: Sequence[float | None] = logprobs if len(logprobs) == len(tokens) else [None] * len(tokens)
    words: list[Word] = []
    at = 0
    for token, start_s, end_s, logprob in zip(tokens, starts_s, ends_s, likely, strict=True):
        written = token.strip(" ▁").removesuffix("@@")
        if not written:
            continue
        begins = at == 0 or text[at : at + 1].isspace()
        at += len(text[at:]) - len(text[at:].lstrip())
        if not text.startswith(written, at):
            return ()
        begins = begins or bool(_NO_SPACES.match(written[0]) or _NO_SPACES.match(text[at - 1]))
        if begins or not words:
            words.append(Word(written, _round(start_s), _round(end_s), _sum(0.0, logprob)))
        else:
            last = words[-1]
            words[-1] = Word(last.text + written, last.start_s, _round(end_s), _sum(last.logprob, logprob))
        at += len(written)
    return () if text[at:].strip() else tuple(words)


def _ends_s(starts_s: Sequence[float], durations_s: Sequence[float]) -> list[float]:
    if len(durations_s) == len(starts_s):
        return [start_s + lasts_s for start_s, lasts_s in zip(starts_s, durations_s, strict=True)]
    following = [*starts_s[1:], float("inf")]
    return [min(start_s + TOKEN_S, max(next_s, start_s)) for start_s, next_s in zip(starts_s, following, strict=True)]


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else round(one + other, 4)


def _round(seconds: float) -> float:
    return round(seconds, 3)
