"""The thinker's tokens: how a conversation is written for it, and how what it writes is read.

A user's word is two tokens: a mark that says which word of the turn it is, and the word itself. Words that the thinker
does not know (``words.txt`` has those it does) are spelled after their mark instead. In an answer a mark means the
user's word, so that repeating is pointing (pointer networks, arXiv:1506.03134). The rest of an answer are sayings of
one token each, or a call: TOOL, then known words and marks. No user's text can become a mark, a saying or a call.

What users say is folded to plain words first (``normalise``): one form for typed and for heard requests. Knows no
network and no stage.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, chain, pairwise
from pathlib import Path

from engine.core import AudioPart, Message, TextPart, ToolCallPart, ToolResultPart
from engine.worker.models.nano.messages import shows, text_of
from engine.worker.models.nano.plain import ascii_text, normalise
from engine.worker.models.nano.sayings import SAYINGS
from engine.worker.models.nano.skills import skill_of

CONTEXT = 512
"""Positions of one conversation, prompt and answer together."""
ANSWER_ROOM = 64
"""Positions kept free for the answer."""
TURN = 224
"""The most that one turn of the user, or a tool's result, may take."""
USER, BOT, END, TOOL, RESULT, UNHEARD, IMAGE, TOOLS, SAID, TO = range(128, 138)
"""Marks: who speaks, where an answer ends, a call, what a tool returned, unintelligible speech, a picture, the skills
that the client has declared tools for, an earlier answer of which only the text is known, and between two of the user's
words all that stand between them; with none behind it, up to the last."""
WORD, WORDS = 138, 32
"""The first of the marks of the user's words, and how many words have one."""
KNOWN = WORD + WORDS
"""The first of the known words."""


@cache
def known_words() -> tuple[str, ...]:
    return tuple(Path(__file__).with_name("words.txt").read_text().split())


SAYING = KNOWN + len(known_words())
"""The first of the SAYINGS."""
VOCABULARY = SAYING + len(SAYINGS)
TOKENIZER = f"nano:{hashlib.sha256(repr((SAYING, known_words(), SAYINGS)).encode()).hexdigest()[:16]}"
"""The name of these tokens: another one where a word or a saying is."""


@cache
def _number() -> dict[str, int]:
    return {word: KNOWN + n for n, word in enumerate(known_words())}


def prompt_ids(messages: Sequence[Message], transcript: str | None = None, skills: Iterable[str] = ()) -> list[int]:
    """The conversation as ids, ending with BOT: the declared skills, then the newest turns that leave ANSWER_ROOM.

    ``transcript`` is what the last user's speech was understood as ("" if not at all). System messages are left out:
    nano cannot follow instructions.
    """
    turns: list[list[list[int]]] = [[[]]]
    for message in messages:
        if message.role == "user":
            words = f"{text_of(message)} {(transcript if message is messages[-1] else None) or ''}"
            turns.append([user_ids(words, shows([message]))])
        elif message.role == "assistant":
            turns[-1].append(_assistant_ids(message, opened=turns[-1][-1][-1:] == [BOT]))
        elif message.role == "tool":
            turns[-1] += [result_ids(part.output) for part in message.parts if isinstance(part, ToolResultPart)]
    if transcript is not None and (not messages or messages[-1].role != "user"):
        turns.append([user_ids(transcript)])
    declared = tools_ids(skills)
    room = CONTEXT - ANSWER_ROOM - len(declared)
    ids = [*declared, *(i for turn in _window([_newest(turn, room) for turn in turns], room) for i in turn)]
    return ids if ids[-1:] == [BOT] else [*ids, BOT]


def _newest(turn: list[list[int]], room: int) -> list[int]:
    """The user's words, and of the calls, results and answers behind them the newest that fit ``room`` together."""
    held = accumulate(map(len, reversed(turn[1:])), initial=len(turn[0]))
    first = len(turn) + 1 - sum(length <= room for length in held)
    return [*turn[0], *chain.from_iterable(turn[first:])]


def _window(turns: list[list[int]], room: int) -> list[list[int]]:
    """The newest turns that fit ``room``.

    Where they get too long, a third of the room is made free at once: the window's beginning, and with it what is
    known of it, then stays for some turns.
    """
    first, held = 0, 0
    for n, turn in enumerate(turns):
        held += len(turn)
        if held > room:
            while first < n and held > room * 2 // 3:
                held -= len(turns[first])
                first += 1
    return turns[first:]


def tools_ids(skills: Iterable[str]) -> list[int]:
    """The beginning of a conversation whose client has declared tools for these skills; none of them: nothing."""
    names = [i for skill in skills for i in word_ids(skill)]
    return [TOOLS, *names] if names else []


def user_ids(text: str, picture: bool = False, spelled: frozenset[int] = frozenset()) -> list[int]:
    """A user's turn up to the mark where the answer begins; no words and no picture are unheard speech.

    ``spelled`` are words, by their number, whose letters are given although they are known.
    """
    content = [IMAGE] * picture
    for number, word in enumerate(normalise(text).split()):
        content += [WORD + number] * (number < WORDS)
        content += letters(word) if number in spelled else word_ids(word)
        if number >= WORDS or len(content) > TURN:
            break
    return [USER, *(content or [UNHEARD])[:TURN], BOT]


def word_ids(word: str) -> list[int]:
    """A known word's token; the letters of another."""
    found = _number().get(folded(word))
    return letters(word) if found is None else [found]


def folded(word: str) -> str:
    """A word as the known ones are written."""
    return word.lower().strip('.,!?"')


def letters(text: str) -> list[int]:
    """One id a character; what is not ASCII is dropped, so text never becomes a mark."""
    return [code for code in map(ord, text) if code < 128]


def user_words(messages: Sequence[Message], transcript: str | None = None) -> list[str]:
    """The words that an answer can point at, without quotation marks."""
    asked = [message for message in messages if message.role == "user"][-1:]
    if transcript is not None and messages and messages[-1].role != "user":
        asked = []
    text = text_of(asked[0]) if asked else ""
    return [word.replace('"', "") for word in normalise(f"{text} {transcript or ''}").split()]


def result_ids(output: str) -> list[int]:
    """A tool's result, JSON reduced to its values, up to the mark where the answer begins."""
    words = [i for word in plain_text(output).split() for i in (*word_ids(word), ord(" "))]
    return [RESULT, *words[:TURN], BOT]


def plain_text(output: str) -> str:
    """Return a tool's result as plain text: of JSON the values, 120 characters at most."""
    values = re.sub(r'"\w+"\s*:|[{}\[\]"]', " ", ascii_text(output))
    return " ".join(values.split()).replace(" ,", ",")[:120]


def said_ids(text: str) -> list[int]:
    """An earlier answer of which only the text is known: the saying that it is, or its first words."""
    if text in SAYINGS:
        return [SAYING + SAYINGS.index(text)]
    return [SAID, *(i for word in normalise(text).split()[:12] for i in (*word_ids(word)[:12], ord(" ")))]


def call_ids(call: str) -> list[int]:
    """A call, ``calc it plus \\ue002``, as ids: a word of the private use area is the mark of that word of the user."""
    ids: list[int] = [TOOL]
    for word in call.split():
        number = ord(word[0]) - PRIVATE
        ids += [WORD + number] if 0 <= number < WORDS else word_ids(word)
    return ids


PRIVATE = 0xE000
"""The first of two characters that stand, in texts that are trained on, for the marks of the user's words."""


def call_text(ids: Sequence[int], words: Sequence[str]) -> str:
    """A call's ids, TOOL left out, as text."""
    return " ".join(filter(None, (_text(i, words) for i in ids)))


def shown(ids: Sequence[int], words: Sequence[str] = ()) -> str:
    """The text of an answer's ids: sayings, and the user's ``words`` for marks; calls are left out."""
    parts, silent, first = list[str](), False, -1
    for i, after in pairwise((*ids, END)):
        silent = i == TOOL or (silent and i not in (BOT, END))
        if silent:
            continue
        if i == TO:
            last = after - WORD if WORD <= after < KNOWN else len(words)
            parts += words[first + 1 : last]
        elif i - WORD != first:  # from a word to itself is that word
            parts.append(_text(i, words))
        first = i - WORD if WORD <= i < KNOWN else first
    return " ".join(filter(None, parts))


def _text(i: int, words: Sequence[str]) -> str:
    if WORD <= i < KNOWN:
        return words[i - WORD] if i - WORD < len(words) else ""
    if i >= SAYING:
        return SAYINGS[i - SAYING]
    return known_words()[i - KNOWN] if i >= KNOWN else ""


def _assistant_ids(message: Message, opened: bool) -> list[int]:
    ids = list(message.ids_of(TOKENIZER))
    if not ids:
        for part in message.parts:
            ids += [TOOL, *word_ids(skill_of(part.name)), END] if isinstance(part, ToolCallPart) else []
            ids += said_ids(part.text) if isinstance(part, TextPart) else []
            ids += said_ids(part.transcript or "") if isinstance(part, AudioPart) else []
    closed = ids if ids[-1:] == [END] else [*ids, END]
    return closed if opened else [BOT, *closed]
