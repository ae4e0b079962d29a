"""The phrases by which a listener shows attention ("mm-hm", "I see"), in several languages (backchannels.toml)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a phrase: one of ``words``, or any number of them."""

    words: frozenset[str]
    repeats: bool


Phrase = tuple[Step, ...]

_HUM = re.compile(r"m{2,}[hma]*|mh[hm]*|h+m+[hm]*")
"""The spellings that ASR models find for a hum: "mmh", "hmmm", "mma" and others."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The comparison of an utterance with the known backchannels."""

    is_backchannel: bool
    """Whether it consists of backchannels only. An utterance without words does."""
    may_become_one: bool
    """Whether it is a backchannel, or begins like one."""


def read(words: str) -> Reading:
    """Compare an utterance with the known backchannels, in one pass over its words."""
    before, phrases_by_first_word = _phrases()
    complete = True  # a phrase may begin: nothing is open but whole phrases
    begins = True
    inside: set[tuple[Phrase, int]] = set()
    for word in re.findall(r"[\w']+", words.lower().replace("-", "").replace("’", "'")):
        word = "mm" if _HUM.fullmatch(word) else word
        reached = {place for phrase, step in inside for place in _after(phrase, step, word)}
        if begins:
            reached |= {place for phrase in phrases_by_first_word.get(word, ()) for place in _after(phrase, 0, word)}
        complete = any(_can_end(phrase, step) for phrase, step in reached)
        begins = complete or (begins and word in before)
        inside = {(phrase, step) for phrase, step in reached if step < len(phrase)}
    return Reading(complete, begins or bool(inside))


def _after(phrase: Phrase, step: int, word: str) -> Iterator[tuple[Phrase, int]]:
    """Yield the places in a phrase after ``word``, which is read at ``step`` or, past optional steps, later."""
    for at in range(step, len(phrase)):
        if word in phrase[at].words:
            yield phrase, at if phrase[at].repeats else at + 1
        if not phrase[at].repeats:
            return


def _can_end(phrase: Phrase, step: int) -> bool:
    return all(rest.repeats for rest in phrase[step:])


@cache
def _phrases() -> tuple[frozenset[str], Mapping[str, list[Phrase]]]:
    """Return the words that may precede a phrase, and the phrases by each of their first words."""
    text = Path(__file__).with_name("backchannels.toml").read_text(encoding="utf-8")
    listed: dict[str, dict[str, list[str]]] = tomllib.loads(text)
    classes = listed.pop("words")
    before: set[str] = set()
    by_first_word: dict[str, list[Phrase]] = {}
    for language in listed.values():
        before |= set(language.get("before", ()))
        for written in language["phrases"]:
            phrase = tuple(_step(part, classes) for part in written.split())
            for word in phrase[0].words:
                by_first_word.setdefault(word, []).append(phrase)
    return frozenset(before), by_first_word


def _step(written: str, classes: Mapping[str, list[str]]) -> Step:
    words: set[str] = set()
    for choice in written.removesuffix("*").split("|"):
        words |= set(classes[choice[1:-1]] if choice.startswith("<") else (choice,))
    return Step(frozenset(words), written.endswith("*"))
