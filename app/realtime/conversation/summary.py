"""The text that stands for the older turns of a long conversation: a language model's summary, checked and completed.

The user's own sentences with facts complete it, or replace it if it is unusable. No model and no I/O is needed for
those. Stateless.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from app.realtime.protocol import (
    AssistantAudio,
    CallOutputItem,
    Content,
    HostedCallItem,
    Item,
    MessageItem,
    MessageText,
    UserAudio,
)

INSTRUCTION = (
    "Pause the conversation and write notes that will replace its older part. In short sentences, state every fact "
    "that was said: names, numbers, dates, places, wishes, decisions and open questions. Use the language of the "
    "conversation. Add nothing, and answer nothing. Write at most {words} words."
)
"""The request for a summary, as the user's last message: the prompt before it is the conversation's, and is cached."""
TITLE = "[Notes of the earlier conversation]"
_WRITTEN = 0.6
"""Maximum share of the text that a model may write; the rest is for facts that it left out."""
_COVERED = 0.5
"""Share of the user's facts that a usable summary contains."""
_KNOWN = 0.75
"""Share of the names and numbers in a usable summary that the conversation contains."""
_MOST_COMPRESSION = 2.4
"""The ratio of a text's length to its compressed length above which it counts as a loop, as in Whisper's decoder."""
_RESULT_CHARS = 160
"""Characters of a tool's result that become a fact."""
_ITEM_CHARS = 2_000
"""Characters of an item that are searched for facts."""
_MOST_CHARS = 100_000
"""Characters of all items that are searched, newest first: some milliseconds on the event loop."""
_LEAST_CHARS = 8
_SENTENCE_CHARS = 200
"""Characters of the longest sentence that counts as a fact."""
_LONG = 5
"""Letters of a word that is unlikely to be a pronoun, an article or a preposition."""
_ENDS = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？।])|\n+")
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_FIRST_PERSON = frozenset({
    "i", "i'm", "i've", "i'd", "i'll", "my", "mine", "we", "our", "ich", "mein", "meine", "meinen", "meinem",
    "meiner", "wir", "unser", "unsere", "je", "j'ai", "mon", "ma", "mes", "notre", "yo", "mi", "mis", "nosotros",
    "nuestro", "nuestra", "io", "mio", "mia", "miei", "mie", "noi", "nostro", "nostra", "eu", "meu", "minha",
    "meus", "minhas", "nós", "nosso", "nossa", "ik", "mijn", "wij", "ons", "onze", "я", "мой", "моя", "моё",
    "мои", "мы", "наш", "наша",
})  # fmt: skip
"""Words by which people speak of themselves. Objects such as "me" are rather part of requests."""


class _Fact(NamedTuple):
    text: str
    cues: int
    """The number of kinds of cues: names, numbers and the first person."""


def summary_of(written: str, older: Sequence[Item], chars: int) -> tuple[str, bool]:
    """Return at most ``chars`` characters that stand for the ``older`` items, and whether a model wrote part of them.

    ``written`` is a language model's summary, or "". The text is empty if nothing is worth noting.
    """
    facts = _facts(older)
    written = written.strip()
    room = chars - len(TITLE) - 1
    used = bool(written) and _is_usable(written, older, facts, room)
    if used:
        words = _words(written)
        left = [fact for fact in facts if not _is_covered(fact.text, words)]
        lines = [written, *_selected(left, room - len(written) - 1)]
    else:
        lines = _selected(facts, room)
    return ("\n".join((TITLE, *lines)) if lines else ""), used


def _is_usable(written: str, older: Sequence[Item], facts: Sequence[_Fact], chars: int) -> bool:
    """Return whether a model's summary is short enough, does not loop, and agrees with the ``older`` items."""
    said = "\n".join(text for item in _searched(older) for text in _texts(item))
    if len(written) > min(chars * _WRITTEN, len(said)):
        return False
    if len(written) > _MOST_COMPRESSION * len(zlib.compress(written.encode("utf-8", "surrogatepass"))):
        return False
    terms = _terms(written)
    words = _words(written)
    wanted = _selected(facts, chars)
    covered = sum(_is_covered(fact, words) for fact in wanted)
    return len(terms & _words(said)) >= _KNOWN * len(terms) and covered >= _COVERED * len(wanted)


def _is_covered(fact: str, words: frozenset[str]) -> bool:
    """Return whether ``words`` have every name and number of a fact, and half of its long words."""
    long = {word for word in _words(fact) if len(word) >= _LONG}
    return _terms(fact) <= words and 2 * len(long & words) >= len(long)


def _facts(items: Sequence[Item]) -> list[_Fact]:
    """Return the user's sentences that state a fact, and the results of tools. Of equal sentences, the last is kept."""
    found: dict[str, _Fact] = {}
    for item in _searched(items):
        for fact in _facts_of(item):
            key = fact.text.casefold()
            found.pop(key, None)
            found[key] = fact
    return list(found.values())


def _searched(items: Sequence[Item]) -> Sequence[Item]:
    """Return the newest items, as far as their texts have at most _MOST_CHARS characters."""
    left = _MOST_CHARS
    for at in range(len(items) - 1, -1, -1):
        left -= min(_ITEM_CHARS, sum(map(len, _texts(items[at]))))
        if left < 0:
            return items[at + 1 :]
    return items


def _facts_of(item: Item) -> list[_Fact]:
    match item:
        case MessageItem(role="user"):
            sentences = (" ".join(one.split()) for text in _texts(item) for one in _ENDS.split(text))
            return [_Fact(one, cues) for one in sentences if (cues := _cues(one))]
        case CallOutputItem() | HostedCallItem():
            results = (" ".join(text.split())[:_RESULT_CHARS] for text in _texts(item))
            return [_Fact(f"A tool returned: {result}", 1) for result in results if result]
        case _:
            return []


def _cues(sentence: str) -> int:
    """Count the signs of a fact in a sentence; 0 for a question, or a sentence that is too short or too long."""
    words = _WORD.findall(sentence)
    is_short = len(sentence) < _LEAST_CHARS or (len(words) < 3 and sentence.isascii())
    if is_short or len(sentence) > _SENTENCE_CHARS or sentence[-1] in "?？؟":
        return 0
    terms = _terms(sentence)
    has_number = any(map(str.isdecimal, sentence))
    has_name = any(not term.isdecimal() for term in terms)
    return has_number + has_name + any(word.casefold().replace("’", "'") in _FIRST_PERSON for word in words)


def _selected(facts: Sequence[_Fact], room: int) -> list[str]:
    """Return the facts with most cues, the most recent ones first, that fit into ``room`` characters; in order."""
    kept = set[int]()
    for at in sorted(range(len(facts)), key=lambda at: (facts[at].cues, at), reverse=True):
        size = len(facts[at].text) + 1
        if size <= room:
            room -= size
            kept.add(at)
    return [facts[at].text for at in sorted(kept)]


def _terms(text: str) -> frozenset[str]:
    """Return the names and numbers in a text, without case. A capital that begins a sentence makes no name."""
    found = set[str]()
    for sentence in _ENDS.split(text):
        words = _WORD.findall(sentence)
        found |= {
            word.casefold()
            for at, word in enumerate(words)
            if word[0].isdecimal()
            or (at and word[0].isupper() and word.casefold().replace("’", "'") not in _FIRST_PERSON)
        }
    return frozenset(found)


def _words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text))


def _texts(item: Item) -> list[str]:
    match item:
        case MessageItem(content=content):
            return [text for part in content if (text := _text(part))]
        case CallOutputItem(output=output):
            return [output[:_ITEM_CHARS]]
        case HostedCallItem():
            return [(item.result or "")[:_ITEM_CHARS]]
        case _:
            return []


def _text(part: Content) -> str:
    """Return the first words of a content: of an answer only those that were heard."""
    match part:
        case MessageText(text):
            return text[:_ITEM_CHARS]
        case AssistantAudio():
            return part.played_text[:_ITEM_CHARS]
        case UserAudio(transcript=transcript):
            return (transcript or "")[:_ITEM_CHARS]
        case _:
            return ""
