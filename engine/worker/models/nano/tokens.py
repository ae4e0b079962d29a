"""Tokenization of nano's language model: encodes a conversation, and decodes the model's output.

A user's word takes two tokens: a marker with its position in the turn, and the word itself. Words outside of
``words.txt`` are spelled after their marker. In an answer, a marker stands for the user's word, so repeating is
pointing (pointer networks, arXiv:1506.03134). The rest of an answer consists of sayings of one token each, or of a
call: TOOL, then known words and markers. A user's text can never become a marker, a saying or a call.

User text is normalized first (``normalise``), so that typed and spoken requests look alike.
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
"""Maximum positions of a conversation, prompt and answer together."""
ANSWER_ROOM = 64
"""Positions reserved for the answer."""
TURN = 224
"""Maximum tokens of one user turn or tool result."""
USER, BOT, END, TOOL, RESULT, UNHEARD, IMAGE, TOOLS, SAID, TO = range(128, 138)
"""Special tokens: user turn, nano's turn, end of answer, tool call, tool result, unintelligible speech, picture,
declared skills, an earlier answer known only as text, and a range of the user's words: all words between the two
neighbouring markers, or to the end if no marker follows.
"""
WORD, WORDS = 138, 32
"""First marker of the user's words, and the number of markers."""
KNOWN = WORD + WORDS
"""First known word."""


@cache
def known_words() -> tuple[str, ...]:
    return tuple(Path(__file__).with_name("words.txt").read_text().split())


SAYING = KNOWN + len(known_words())
"""First of the SAYINGS."""
VOCABULARY = SAYING + len(SAYINGS)
TOKENIZER = f"nano:{hashlib.sha256(repr((SAYING, known_words(), SAYINGS)).encode()).hexdigest()[:16]}"
"""Name of this tokenizer; it changes with any word or saying."""


@cache
def _number() -> dict[str, int]:
    return {word: KNOWN + n for n, word in enumerate(known_words())}


def prompt_ids(messages: Sequence[Message], transcript: str | None = None, skills: Iterable[str] = ()) -> list[int]:
    """Encode a conversation, ending with BOT: the declared skills, then the newest turns that leave ANSWER_ROOM.

    ``transcript`` is the recognized text of the last user speech ("" if not understood). System messages are left out,
    because nano cannot follow instructions.
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
    """Return the user's words, and the newest calls, results and answers of the turn that fit into ``room``."""
    held = accumulate(map(len, reversed(turn[1:])), initial=len(turn[0]))
    first = len(turn) + 1 - sum(length <= room for length in held)
    return [*turn[0], *chain.from_iterable(turn[first:])]


def _window(turns: list[list[int]], room: int) -> list[list[int]]:
    """Return the newest turns that fit into ``room``.

    If they are too long, a third of the room is freed at once. The start of the window, and so its cached prefix, then
    stays the same for some turns.
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
    """Return the tokens that declare the client's skills; empty without skills."""
    names = [i for skill in skills for i in word_ids(skill)]
    return [TOOLS, *names] if names else []


def user_ids(text: str, picture: bool = False, spelled: frozenset[int] = frozenset()) -> list[int]:
    """Encode a user turn up to BOT; without words or a picture it is unintelligible speech.

    ``spelled`` are indices of words that are spelled although they are known.
    """
    content = [IMAGE] * picture
    for number, word in enumerate(normalise(text).split()):
        content += [WORD + number] * (number < WORDS)
        content += letters(word) if number in spelled else word_ids(word)
        if number >= WORDS or len(content) > TURN:
            break
    return [USER, *(content or [UNHEARD])[:TURN], BOT]


def word_ids(word: str) -> list[int]:
    """Return the token of a known word, or the letters of another."""
    found = _number().get(folded(word))
    return letters(word) if found is None else [found]


def folded(word: str) -> str:
    """Return a word in the form of the known words."""
    return word.lower().strip('.,!?"')


def letters(text: str) -> list[int]:
    """Return one token per character; non-ASCII characters are dropped, so text never becomes a marker."""
    return [code for code in map(ord, text) if code < 128]


def user_words(messages: Sequence[Message], transcript: str | None = None) -> list[str]:
    """Return the words that an answer can point to, without quotation marks."""
    asked = [message for message in messages if message.role == "user"][-1:]
    if transcript is not None and messages and messages[-1].role != "user":
        asked = []
    text = text_of(asked[0]) if asked else ""
    return [word.replace('"', "") for word in normalise(f"{text} {transcript or ''}").split()]


def result_ids(output: str) -> list[int]:
    """Encode a tool result, with JSON reduced to its values, up to BOT."""
    words = [i for word in plain_text(output).split() for i in (*word_ids(word), ord(" "))]
    return [RESULT, *words[:TURN], BOT]


def plain_text(output: str) -> str:
    """Return a tool result as plain text of at most 120 characters; JSON is reduced to its values."""
    values = re.sub(r'"\w+"\s*:|[{}\[\]"]', " ", ascii_text(output))
    return " ".join(values.split()).replace(" ,", ",")[:120]


def said_ids(text: str) -> list[int]:
    """Encode an earlier answer that is known only as text: as its saying, or its first words."""
    if text in SAYINGS:
        return [SAYING + SAYINGS.index(text)]
    return [SAID, *(i for word in normalise(text).split()[:12] for i in (*word_ids(word)[:12], ord(" ")))]


def call_ids(call: str) -> list[int]:
    """Encode a call such as ``calc it plus \\ue002``; a private-use character stands for a marker of the user's
    words.
    """
    ids: list[int] = [TOOL]
    for word in call.split():
        number = ord(word[0]) - PRIVATE
        ids += [WORD + number] if 0 <= number < WORDS else word_ids(word)
    return ids


PRIVATE = 0xE000
"""First of the private-use characters that stand for markers in training texts."""


def call_text(ids: Sequence[int], words: Sequence[str]) -> str:
    """Decode a call's tokens (without TOOL) to text."""
    return " ".join(filter(None, (_text(i, words) for i in ids)))


def shown(ids: Sequence[int], words: Sequence[str] = ()) -> str:
    """Decode an answer's tokens: sayings, and the user's ``words`` for markers. Calls are left out."""
    parts, silent, first = list[str](), False, -1
    for i, after in pairwise((*ids, END)):
        silent = i == TOOL or (silent and i not in (BOT, END))
        if silent:
            continue
        if i == TO:
            last = after - WORD if WORD <= after < KNOWN else len(words)
            parts += words[first + 1 : last]
        elif i - WORD != first:  # a range from a word to itself is just that word
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
