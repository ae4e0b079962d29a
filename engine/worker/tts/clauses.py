"""Splitting of an answer's text into clauses, for voices that take whole texts.

The first clause is short, for an early first sound. Later ones grow, so that each call of the voice is worth its fixed
cost and sounds like a sentence. The clauses joined are the text, without loss or repetition.
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
"""Maximum words of a clause. It may end at half of that if there is a punctuation mark."""

LONGEST = 40
"""Maximum words of a clause that has no better place for a cut than within a word."""

WORD_LETTERS = 8
"""Characters without a blank that count as one word; of ideographs, a quarter of that."""

CLAUSES_AHEAD = 64
"""Maximum clauses in the queue of a voice: some minutes of speech. The client gets the text without waiting for it."""

SHORT_PHRASE = 3
"""Words of a phrase that may be a first clause of its own."""

AT_ONCE = 1024  # characters of a long text that are looked at without a pause: some milliseconds


@dataclass(frozen=True, slots=True)
class Clause:
    """A text for one call of the voice, and for each of its characters its index in the answer."""

    text: str
    sources: tuple[int, ...]

    @property
    def lettered(self) -> bool:
        """Whether it has letters or digits."""
        return any(map(str.isalnum, self.text))

    @property
    def end(self) -> int:
        """Number of characters of the answer that have been said after this clause."""
        return self.sources[-1] + 1

    def words(self) -> list[tuple[float, int]]:
        """Estimate by the letters, for each word, the share of the clause's sound at which it ends, and the characters
        of the answer that have been said by then."""
        until = list(accumulate(map(_letters, self.text)))
        ends = [i for i, character in enumerate(self.text) if not character.isspace() and self._is_end(i + 1)]
        said = [*ends[:-1], len(self.text) - 1]  # the last word's blanks are said with it
        spoken = until[ends[-1]] if ends else 1
        return [(until[i] / spoken, self.sources[j] + 1) for i, j in zip(ends or [0], said, strict=True)]

    def _is_end(self, i: int) -> bool:
        return i == len(self.text) or self.text[i].isspace() or (is_wide(self.text[i]) and is_wide(self.text[i - 1]))


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the text of the next clause: characters, words and letters before it."""

    at: int
    words: int
    letters: int

    @property
    def size(self) -> int:
        return _size(self.words, self.letters)


class Clauses:
    """Feed an answer's text in any pieces, flush once at the end: the pieces make no difference to the clauses.

    ``words`` gives each clause's length. A sentence ends it from half of that on, a comma from three quarters (the
    first one from half), a blank at the whole; what has no such place is cut between ideographs, and at last anywhere.
    With ``phrases``, the first one ends at any sentence and at a comma behind three words, and not within a phrase.
    Where ``count`` of them were said elsewhere, the next one ends where that other one cut: before the answer's
    ``until``-th character.
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
        self._places: dict[Level, _Place] = {}  # the last place of each level in the next clause's text

    def feed(self, text: str, start: int) -> Iterator[Clause]:
        """The clauses that are complete by now. The text's first character is the answer's ``start``-th, or one behind
        what is not said; it has been taken once the iterator has ended."""
        for i, character in enumerate(text, start):
            level = self._breaks.push(character)
            if self._text:
                if level is not None and level > Level.GRAPHEME:
                    self._places[level] = self._here
                if (place := self._cut(level, i)) is not None:
                    yield self._take(place)
            self._add(character, i)

    def hurry(self) -> Clause | None:
        """The listener would run dry: what of the next clause can be said on its own now, if it is worth a call."""
        for level in () if self._until else (Level.SENTENCE, Level.PHRASE, Level.WORD):
            place = self._places.get(level)
            if place is not None and place.size >= self._lengths.size(0) / 2:
                return self._take(place)
        return None

    def flush(self) -> Clause | None:
        """Return the rest."""
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
        """Find where the next clause ends, if that is known by now; ``level`` is how well this very place may be
        cut."""
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
        """Return the share of a clause's length from which on it may end at such a place."""
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
    """The place where another replica was: ``count`` clauses, of ``said`` characters of the answer, had been said, and
    the next one was to end before its ``until``-th."""

    said: int = 0
    count: int = 0
    until: int = 0


async def clauses(
    req: StageRequest,
    inputs: AsyncIterator[Chunk],
    words: ChunkSpec = WORDS,
    resume: ResumePoint = ResumePoint(),
    phrases: bool = False,
) -> AsyncGenerator[Clause]:
    """The rows of a voice that takes whole texts, for its ``adapt``. A clause ends sooner where its listener would run
    dry otherwise."""
    cutter = Clauses(words, resume.count, resume.until, phrases)
    async for chunk in inputs:
        if not isinstance(chunk, Text | VoiceText):
            continue
        for at in range(max(0, resume.said - chunk.start), len(chunk.text), AT_ONCE):
            for clause in cutter.feed(chunk.text[at : at + AT_ONCE], chunk.start + at):
                yield clause
            if at + AT_ONCE < len(chunk.text):
                await asyncio.sleep(0)  # a long text holds up nobody
        if req.pace.hurry() and (clause := cutter.hurry()) is not None:
            yield clause
    if (last := cutter.flush()) is not None:
        yield last


def _letters(character: str) -> int:
    """Return how long a character takes to say, in letters."""
    return WORD_LETTERS // 2 if is_wide(character) else 1


def _size(words: int, letters: int) -> int:
    """Return how long a text is in words, or in what takes as long to say."""
    return max(words, letters // WORD_LETTERS)


def on_one_line(text: str) -> str:
    """A text on one line, and without what is no character."""
    return " ".join(text.encode("utf-8", "ignore").decode().replace("\0", " ").split())
