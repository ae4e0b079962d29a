"""Judges whether an answer is right, for both typed and spoken evaluations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from engine.training.nano.lexicon import DAYS, MONTHS, ONES, TENS, number_words

Expect = Mapping[str, Any]
"""A right answer: ``kind`` and the payload of that kind (see ``answers_rightly``)."""

_REFUSAL = r"\b(i (do not|don't) know|i cannot|i can't|i can only|i only|bigger model|did not catch|didn't catch)\b"
_PATTERNS = {
    "greet": r"^(hello|hi|good (morning|afternoon|evening)|nice to meet you)\b",
    "bye": r"\b(goodbye|good night|see you)\b",
    "thanks": r"\b(you are welcome|my pleasure)\b",
    "howareyou": r"\bi am (fine|well)\b",
    "name": r"\b(my name is|i am) nano\b",
    "abilities": r"\bi can\b.*\b(repeat|spell)\b",
    "limits": r"\bi cannot\b.*\b(see|know|browse|talk)\b",
    "what": r"\bi am (nano, )?a (tiny|very small|small) (language |computer )?(model|program)\b",
    "maker": r"\b(made|trained) (me|by)\b|\bi was (made|trained)\b",
    "where": r"\bon this computer\b",
    "hear": r"\byes, i (am here|can hear you)\b",
    "language": r"\bonly (speak )?english\b",
    "joke": r"\b(why|what do you call|what did)\b.*\?.+",
    "coin": r"\b(heads|tails)\b",
    "dice": r"\b[1-6]\b",
    "compliment": r"\bthank you\b",
    "insult": r"\bi am sorry\b",
    "sorry": r"\bno problem\b",
    "okay": r"^(okay|all right)\b",
    "mood_good": r"\bglad\b",
    "mood_bad": r"\bsorry to hear\b",
    "see": r"\bi have no picture\b",
    "unheard": r"\b(did not|didn't) (catch|hear|understand)\b",
    "time": r"\b\d{1,2}:\d\d\b",
    "date": r"\b(" + "|".join(MONTHS) + r") \d{1,2}\b|\b\d{4}-\d\d-\d\d\b",
    "alphabet": r"a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z\b",
    "name_unknown": r"\b(do not|don't) know your name\b",
}  # fmt: skip


def answers_rightly(expect: Expect, answer: str) -> bool:
    """Whether ``answer`` (text) does what ``expect`` asks.

    Kinds with payload: repeat ``words``; spell ``word``; number ``value`` (sums, differences, products, next number);
    count ``first`` and ``last``; calendar ``name`` (a day or month); list ``names`` (joined by spaces); user_name
    ``name``; tool ``result`` (must be said); says ``text`` (exactly these words, or those behind a "|"); call ``name``
    and ``arguments`` (the answer is then the call, as JSON; for no other kind it is). The kind refuse takes any honest
    refusal. The kinds of small talk carry no payload. Letter case and punctuation never matter, "42" and "forty two"
    are the same.
    """
    kind, text = str(expect["kind"]), answer.lower().strip()
    if kind == "call" or answer.startswith('{"name"'):
        return kind == "call" and _calls(expect, answer)
    if kind in _CHECKS:
        return _CHECKS[kind](expect, text)
    if kind not in _PATTERNS:
        raise ValueError(f"the judge knows no kind {kind!r}; it knows {sorted([*_PATTERNS, *_CHECKS])}")
    return re.search(_PATTERNS[kind], text) is not None


def plain_words(text: str) -> list[str]:
    """Return lower-case words without punctuation, numbers up to 999 spelled out, to compare sentences."""
    words: list[str] = []
    for token in re.findall(r"[a-z0-9']+", text.lower().replace("-", " ")):
        words += number_words(int(token)).split() if token.isdigit() and int(token) < 1000 else [token]
    return words


def _refuses(_: Expect, text: str) -> bool:
    return re.search(_REFUSAL, text) is not None


def _repeats(expect: Expect, text: str) -> bool:
    return plain_words(text) == plain_words(str(expect["words"]))


def _spells(expect: Expect, text: str) -> bool:
    letters = re.split(r"[\s,.\-]+", text.strip(" .,!"))
    return letters == list(str(expect["word"]).lower())


def _last_number(text: str) -> int | None:
    """Return the last number of the text, in digits or words, with a preceding "minus" as its sign."""
    words = plain_words(text)
    end = next((i for i in range(len(words), 0, -1) if words[i - 1] in _NUMBERS or words[i - 1].isdigit()), 0)
    if not end:
        return None
    start, value = end - 1, 0
    if words[start].isdigit():
        value = int(words[start])
    else:
        while start and words[start - 1] in _NUMBERS:
            start -= 1
        for word in words[start:end]:
            value = value * 100 if word == "hundred" else value + _NUMBERS[word]
    return -value if start and words[start - 1] == "minus" else value


_NUMBERS = {word: i for i, word in enumerate(ONES)} | {word: 20 + 10 * i for i, word in enumerate(TENS)}
_NUMBERS["hundred"] = 0


def _is_number(expect: Expect, text: str) -> bool:
    return _last_number(text) == expect["value"] and not _refuses(expect, text)


def _counts(expect: Expect, text: str) -> bool:
    first, last = int(expect["first"]), int(expect["last"])
    step = 1 if last >= first else -1
    wanted = " ".join(number_words(n) for n in range(first, last + step, step))
    return " ".join(plain_words(text)) == wanted


def _names_in_order(expect: Expect, text: str) -> bool:
    """Return whether the text's days and months are the wanted ones in order; for a single one, whether it is the
    last.
    """
    named = [word for word in plain_words(text) if word in DAYS + MONTHS]
    wanted = str(expect.get("names", expect.get("name", ""))).lower().split()
    return named[-1:] == wanted if "name" in expect else named == wanted


def _calls_by_name(expect: Expect, text: str) -> bool:
    return str(expect["name"]).lower() in plain_words(text) and "don't know" not in text


def _says_result(expect: Expect, text: str) -> bool:
    return " ".join(plain_words(str(expect["result"]))) in " ".join(plain_words(text))


def _calls(expect: Expect, answer: str) -> bool:
    if not answer.startswith("{"):
        return False
    call = json.loads(answer)
    return call["name"] == expect["name"] and json.loads(call["arguments"]) == expect["arguments"]


def _says(expect: Expect, text: str) -> bool:
    return plain_words(text) in [plain_words(one) for one in str(expect["text"]).split("|")]


_CHECKS: dict[str, Callable[[Expect, str], bool]] = {
    "refuse": _refuses,
    "repeat": _repeats,
    "spell": _spells,
    "number": _is_number,
    "count": _counts,
    "calendar": _names_in_order,
    "list": _names_in_order,
    "user_name": _calls_by_name,
    "tool": _says_result,
    "says": _says,
}
