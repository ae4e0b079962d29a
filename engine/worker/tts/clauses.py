"""Splits an answer's text into clauses, for voices that speak a whole text per call.

The first clause is short, so that the first audio comes early. Later clauses grow, which amortizes the fixed cost of a
call and sounds more natural. Joined together, the clauses equal the text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import accumulate

from engine.chunk import Chunk, Text, VoiceText
from engine.deployment.config import ChunkSpec
from engine.worker.stage_request import StageRequest
from engine.worker.tts.text_breaks import Breaks, Level, is_wide

WORDS = ChunkSpec(first=6, growth=1.5, steady=30)
"""Maximum words per clause. A clause may end at half of that at a punctuation mark."""

LONGEST = 40
"""Maximum words of a clause that can only be cut within a word."""

WORD_LETTERS = 8
"""Characters without a space that count as one word; two wide characters (ideographs) also count as one."""

CLAUSES_AHEAD = 64
"""Maximum queued clauses per voice, a few minutes of speech. The client receives the text without waiting for it."""

SHORT_PHRASE = 3
"""Minimum words of a phrase that may be a first clause of its own."""

AT_ONCE = 1024  # characters processed before yielding to the event loop, a few milliseconds


@dataclass(frozen=True, slots=True)
class Clause:
    """A text for one call of the voice, with the index in the answer of each of its characters."""

    text: str
    sources: tuple[int, ...]

    @property
    def lettered(self) -> bool:
        """Whether the clause has letters or digits, so that a voice can speak it."""
        return any(map(str.isalnum, self.text))

    @property
    def end(self) -> int:
        """Index in the answer of the first character after this clause."""
        return self.sources[-1] + 1

    def words(self) -> list[tuple[float, int]]:
        """Estimate when each word ends.

        Returns:
            For each word, the share (0 to 1) of the clause's audio at its end, and the number of the answer's
                characters spoken by then.
        """
        until = list(accumulate(map(_letters, self.text)))
        ends = [i for i, character in enumerate(self.text) if not character.isspace() and self._is_end(i + 1)]
        said = [*ends[:-1], len(self.text) - 1]  # trailing spaces belong to the last word
        spoken = until[ends[-1]] if ends else 1
        return [(until[i] / spoken, self.sources[j] + 1) for i, j in zip(ends or [0], said, strict=True)]

    def _is_end(self, i: int) -> bool:
        return i == len(self.text) or self.text[i].isspace() or (is_wide(self.text[i]) and is_wide(self.text[i - 1]))


@dataclass(frozen=True, slots=True)
class _Place:
    """A possible cut in the next clause's text: the characters, words and letters before it."""

    at: int
    words: int
    letters: int

    @property
    def size(self) -> int:
        return _size(self.words, self.letters)


class Clauses:
    """Incremental splitter: feed the text in pieces, then flush. The clauses do not depend on the pieces.

    A clause may end at a sentence end from half of its target length on, at a comma from three quarters on (half for
    the first clause), and at a space from the full length on. A text without such a place is cut between ideographs,
    and finally anywhere.

    Args:
        words: Target length of each clause.
        count: Clauses that another replica has already spoken.
        until: Index in the answer before which the next clause ends, as the other replica cut it; 0 if none.
        phrases: Whether the first clause may already end at any sentence end, or at a comma after SHORT_PHRASE words,
            but not within a phrase.
    """

    def __init__(self, words: ChunkSpec = WORDS, count: int = 0, until: int = 0, phrases: bool = False) -> None:
        self._lengths = words
        self._phrases = phrases
        self._count = count
        self._until = until
        self._breaks = Breaks()
        self._text: list[str] = []
        self._sources: list[int] = []
        self._words = self._letters = 0
        self._in_word = False
        self._places: dict[Level, _Place] = {}  # last possible cut of each level in the next clause

    def feed(self, text: str, start: int) -> Iterator[Clause]:
        """Yield the clauses that are complete.

        ``start`` is the index of the text's first character in the answer; unspoken text may be skipped. Exhaust the
        iterator, so that the whole text is taken.
        """
        for i, character in enumerate(text, start):
            level = self._breaks.push(character)
            if self._text:
                if level is not None and level > Level.GRAPHEME:
                    self._places[level] = self._here
                if (place := self._cut(level, i)) is not None:
                    yield self._take(place)
            self._add(character, i)

    def hurry(self) -> Clause | None:
        """Return a shorter clause early, because the listener's audio would run out; None if there is too little
        text.
        """
        for level in () if self._until else (Level.SENTENCE, Level.PHRASE, Level.WORD):
            place = self._places.get(level)
            if place is not None and place.size >= self._lengths.size(0) / 2:
                return self._take(place)
        return None

    def flush(self) -> Clause | None:
        """Return the remaining text as a clause, or None if there is none."""
        return self._take(self._here) if self._text else None

    @property
    def _here(self) -> _Place:
        return _Place(len(self._text), self._words, self._letters)

    def _add(self, character: str, source: int) -> None:
        begins = not self._in_word and character.isalnum()
        self._in_word = (self._in_word or begins) and not character.isspace()
        self._text.append(character)
        self._sources.append(source)
        self._words += begins
        self._letters += _letters(character)

    def _cut(self, level: Level | None, source: int) -> _Place | None:
        """Return where the next clause ends, or None if more text is needed. ``level`` rates a cut at this place."""
        if self._until:
            return self._here if source >= self._until else None
        most, size = self._lengths.size(self._count), _size(self._words, self._letters)
        if level is not None and level >= Level.WORD and size >= most * self._share(level):
            return self._here
        longest = min(2 * most, max(most, LONGEST))
        if size < longest:
            return None
        for best in sorted(self._places, reverse=True):
            if self._places[best].size >= most / 2:
                return self._places[best]
        return self._here if level is not None or size >= 2 * longest else None

    def _share(self, level: Level) -> float:
        """Return the share of a clause's target length from which a cut of this level is allowed."""
        if level == Level.WORD:
            return 1.0
        if self._phrases and not self._count:
            return (1 if level == Level.SENTENCE else SHORT_PHRASE) / self._lengths.size(0)
        return 0.5 if level == Level.SENTENCE or not self._count else 0.75

    def _take(self, place: _Place) -> Clause:
        clause = Clause("".join(self._text[: place.at]), tuple(self._sources[: place.at]))
        del self._text[: place.at], self._sources[: place.at]
        self._words = self._words - place.words
        self._letters = self._letters - place.letters
        self._places.clear()
        self._count = self._count + 1
        self._until = 0
        return clause


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where to resume after another replica."""

    said: int = 0
    """Characters of the answer that were spoken."""
    count: int = 0
    """Clauses that were spoken."""
    until: int = 0
    """Index in the answer before which the interrupted clause ends; 0 if none."""


async def clauses(
    req: StageRequest,
    inputs: AsyncIterator[Chunk],
    words: ChunkSpec = WORDS,
    resume: ResumePoint = ResumePoint(),
    phrases: bool = False,
) -> AsyncGenerator[Clause]:
    """Yield the clauses of an answer, for a stage's ``adapt``.

    A clause ends earlier if its listener's audio would run out otherwise.
    """
    cutter = Clauses(words, resume.count, resume.until, phrases)
    async for chunk in inputs:
        if not isinstance(chunk, Text | VoiceText):
            continue
        for at in range(max(0, resume.said - chunk.start), len(chunk.text), AT_ONCE):
            for clause in cutter.feed(chunk.text[at : at + AT_ONCE], chunk.start + at):
                yield clause
            if at + AT_ONCE < len(chunk.text):
                await asyncio.sleep(0)  # let other requests run
        if req.pace.hurry() and (clause := cutter.hurry()) is not None:
            yield clause
    if (last := cutter.flush()) is not None:
        yield last


def _letters(character: str) -> int:
    """Return the duration of a character in letters."""
    return WORD_LETTERS // 2 if is_wide(character) else 1


def _size(words: int, letters: int) -> int:
    """Return the length of a text in words; text without spaces counts by its letters."""
    return max(words, letters // WORD_LETTERS)


def on_one_line(text: str) -> str:
    """Return the text on one line, without lone surrogates and NUL characters."""
    return " ".join(text.encode("utf-8", "ignore").decode().replace("\0", " ").split())
