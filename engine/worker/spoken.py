"""Written English -> what one says: lowercase letters, apostrophes, blanks and the pauses `,` `.` `?`, while the
text still arrives.

Numbers, times, dates, money, units, abbreviations, acronyms, addresses and signs are spelled out; words of another
alphabet are mentioned ("something in greek"), and what else cannot be said is dropped. Every letter knows the
character it came from. Knows no model, no voice and no language but English.

A word is spoken as soon as the blank after it is there; only an amount of money waits for the next word ("$3 million").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from threading import Lock
from typing import Any

from engine.worker.lexicon_english import (
    ABBREVIATIONS,
    ALPHABETS,
    ALWAYS_SPELLED,
    CURRENCIES,
    FULL_MONTHS,
    LETTER_NAMES,
    LIGATURES,
    LONE_SIGNS,
    MAGNITUDES,
    MONTHS,
    SIGNS,
    UNITS,
    WORDS_IN_CAPITALS,
)

LONGEST_WORD = 200  # characters; more without a blank is cut, so that no input is held back without end
_IMPORTING = Lock()  # stages of one process are made in threads of their own
PAUSES = {"!": ".", "…": ".", ".": ".", "?": "?", ",": ",", ";": ",", ":": ",", ")": ",", "]": ",", "—": ",", "–": ","}
INNER_PAUSES = frozenset("—–;:")
_OPENING = "([{<\"'“”‘’«»*_`#~|-–—•·"
_CLOSING = "\"'“”‘’»*_`~|}>-–—…!?.,;:)]"
_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?[\w.+-]+(?:@[\w-]+)?(?:\.[a-z]{2,})(?:[/:?#]\S*)?", re.IGNORECASE)
_TOP_LEVEL = re.compile(r"\.(?:com|org|net|edu|gov|io|ai|dev|de|uk|co|info|eu|fr|app|me|tv)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Said:
    """Letters to say and, for each, the index of its source character in all text fed so far."""

    letters: str
    sources: tuple[int, ...]

    def __add__(self, other: Said) -> Said:
        return Said(self.letters + other.letters, self.sources + other.sources)


NOTHING = Said("", ())


class Speller:
    """Feed pieces of text, flush once at the end. How the text is cut makes no difference to the whole output."""

    def __init__(self) -> None:
        self._begin = 0  # index of the first character of self._word
        self._word = ""
        self._money: tuple[str, int] | None = None
        self._before = ""  # the word before, as written
        self._last = ""  # the last letter said

    def feed(self, text: str, start: int | None = None) -> Said:
        """What can be said now. ``start`` is where the piece begins in the whole text, if not where the last one ended:
        what is left out between them is not said, and counts.
        """
        if start is not None:
            self._begin = start - len(self._word)
        return _join(self._feed(text))

    def flush(self) -> Said:
        """The rest, closed by a full stop if something was said and it ends without one."""
        said = [self._end_word(), self._release_money("")]
        if self._last and self._last not in ".?":
            said.append(self._say(".", self._begin - 1, 1))
        return _join(said)

    def _feed(self, text: str) -> Iterator[Said]:
        for character in text:
            if character.isspace():
                yield self._end_word()
                self._begin += 1
                if character == "\n" and self._last not in " ,.?" and self._last:
                    yield self._release_money("")
                    yield self._say(",", self._begin - 1, 1)
                continue
            self._word += character
            if len(self._word) >= LONGEST_WORD:
                yield self._end_word()

    def _end_word(self) -> Said:
        word, begin = self._word, self._begin
        if not word:
            return NOTHING
        self._word, self._begin = "", begin + len(word)
        magnitude = word.rstrip(_CLOSING).lower()
        if self._money and magnitude in MAGNITUDES:
            released = self._release_money(magnitude, tail=_pause(word))
            self._before = word
            return released
        released = self._release_money("")
        if re.fullmatch(rf"[-+(]?[$€£¥](?:{_NUMBER})", word):
            self._money, self._before = (word, begin), word
            return released
        said = released + self._say(speak(word, self._before), begin, len(word))
        self._before = word
        return said

    def _release_money(self, magnitude: str, tail: str = "") -> Said:
        if not self._money:
            return NOTHING
        (word, begin), self._money = self._money, None
        return self._say(money(word, magnitude) + tail, begin, len(word))

    def _say(self, spoken: str, begin: int, length: int) -> Said:
        """Put a blank before words and drop pauses that follow pauses; spread the letters over the source
        characters.
        """
        spoken = " ".join(re.sub(r"\s*([,.?])[ ,.?]*", r"\1 ", spoken).split())
        if self._last in ("", ",", ".", "?"):
            spoken = spoken.lstrip(",.? ")
        if not spoken:
            return NOTHING
        shift = 1 if self._last and spoken[0] not in ",.?" else 0
        sources = tuple(begin + index * length // len(spoken) for index in range(len(spoken)))
        self._last = spoken[-1]
        return Said(" " * shift + spoken, (begin,) * shift + sources)


def _join(parts: Iterator[Said] | list[Said]) -> Said:
    parts = list(parts)
    return Said("".join(part.letters for part in parts), tuple(index for part in parts for index in part.sources))


@lru_cache(4096)  # words come again and again, and a burst of first sounds waits for each of them
def speak(word: str, before: str = "") -> str:
    """One written word with its punctuation -> what one says. `before` is the word before it, as written."""
    word = unicodedata.normalize("NFKC", word).replace("’", "'").replace("‘", "'")
    lowered = word.strip(_OPENING).rstrip("\"'”)]},;:!?").lower()
    if lowered in ABBREVIATIONS:
        return ABBREVIATIONS[lowered] + _pause(word[len(word.rstrip("\"'”)]},;:!?")) :])
    if word in LONE_SIGNS:
        return LONE_SIGNS[word] if before else ""
    core = word.rstrip(_CLOSING)
    tail = _pause(word[len(core) :])
    if re.match(r"[-–—−](?=[\d.$€£])", core):
        return "minus " + _core(core[1:], before, tail) + tail
    if re.match(r"#\d", core):
        return "number " + _core(core[1:], before, tail) + tail
    return _core(core.lstrip(_OPENING), before, tail) + tail


def _pause(closing: str) -> str:
    """The strongest pause within closing punctuation, or none: . and ? before comma."""
    pauses = [PAUSES[sign] for sign in closing if sign in PAUSES]
    return next((pause for pause in ("?", ".", ",") if pause in pauses), "")


def _core(core: str, before: str, tail: str) -> str:
    """A word without the punctuation around it."""
    if alphabet := foreign(core):
        return "" if foreign(before) == alphabet else f"something in {alphabet}"
    for pattern, say in _SHAPES:
        if match := pattern.fullmatch(core):
            return say(match, before)
    if len(core) == 1 and core.isalpha() and core.isascii():
        return _single_letter(core, before, tail)
    if _ADDRESS.fullmatch(core) and (_TOP_LEVEL.search(core) or "@" in core or "://" in core):
        return address(core)
    return " ".join(_part(part) for part in re.split(r"([^\w']|_)", core))


def _single_letter(letter: str, before: str, tail: str) -> str:
    """Letters are named; a and I are words unless they stand in a row of letters or before a comma."""
    in_row = bool(re.fullmatch(r"[A-Za-z][,;:]?", before)) and before.lower() not in ("a", "i")
    is_word = letter in "aI" and not in_row and not (tail == "," and letter == "a")
    return letter.lower() if is_word else LETTER_NAMES[letter.lower()]


def _part(part: str) -> str:
    """A run of letters, digits and apostrophes, or one sign."""
    if part in INNER_PAUSES:
        return ","
    if part in SIGNS and part != "-":
        return SIGNS[part]
    if len(part) == 1 and part.lower() in LETTER_NAMES:
        return LETTER_NAMES[part.lower()]
    pieces = re.findall(r"\d+(?:\.\d+)?|[^\W\d]+(?:'[^\W\d]+)*", part)
    mixed = len(pieces) > 1
    return " ".join(digits_or_number(piece) if piece[0].isdecimal() else _letters(piece, mixed) for piece in pieces)


def _letters(word: str, mixed: bool = False) -> str:
    """A run of letters: a word, or an acronym spelled as letter names."""
    plain = _latin(word)
    base, plural = (plain[:-1], "s") if re.fullmatch(r"[A-Z]{2,}s", plain) else (plain, "")
    vowels = re.search(r"[aeiouy]", base.lower())
    capital = base.isupper() and len(base) > 1 and base not in WORDS_IN_CAPITALS
    short = len(base) <= 3 or not vowels
    if (
        base.lower() in ALWAYS_SPELLED
        or (capital and short)
        or (mixed and len(base) <= 2 and "'" not in base)
        or not vowels
    ):
        return " ".join(LETTER_NAMES.get(letter, "") for letter in base.lower()) + ("s" if plural else "")
    return re.sub(r"[^a-z']", "", plain.lower()).strip("'")


def _latin(word: str) -> str:
    """Letters of the English alphabet, accents off; other alphabets vanish."""
    bare = unicodedata.normalize("NFKD", word.translate(LIGATURES))
    return "".join(letter for letter in bare if letter == "'" or (letter.isascii() and letter.isalpha()))


def foreign(word: str) -> str:
    """What a word of letters that cannot be read is written in ("greek"), or "" if some of it can or it has none."""
    letters = [character for character in word if character.isalpha()]
    if not letters or _latin(word) or any(character.isdecimal() for character in word):
        return ""
    name = unicodedata.name(letters[0], "another script").lower().split()[0]
    return ALPHABETS.get(name, name if name.isalpha() and name.isascii() else "another script")


@cache
def grammar() -> Any:
    """inflect's rules for numbers. A stage imports it while it is made."""
    with _without_type_checks():
        import inflect

    return inflect.engine()


@contextmanager
def _without_type_checks() -> Generator[None]:
    """While it is imported, inflect has typeguard rewrite each of its methods to check their arguments: two seconds of
    each start. What it is asked here are strings of digits."""
    import typeguard

    with _IMPORTING:
        checked = typeguard.typechecked
        typeguard.typechecked = _as_it_is
        try:
            yield
        finally:
            typeguard.typechecked = checked


def _as_it_is(target: Any) -> Any:
    return target


def cardinal(digits: str) -> str:
    """Digits, at most 15 -> one hundred and twenty five."""
    return str(grammar().number_to_words(str(int(digits)))).replace("-", " ").replace(",", "")


def ordinal(digits: str) -> str:
    return str(grammar().number_to_words(grammar().ordinal(str(int(digits))))).replace("-", " ").replace(",", "")


def one_by_one(digits: str) -> str:
    """Digit by digit, a short pause after every third; what is left joins the last group if it is a single digit."""
    groups = re.findall(r"\d{3}(?=\d{2})|\d+", digits) if len(digits) > 4 else [digits]
    return ", ".join(" ".join(_DIGITS[int(digit)] for digit in group) for group in groups)


def digits_or_number(written: str) -> str:
    """12,345.67 or 007: long numbers and those with a leading zero are read digit by digit."""
    whole, _, fraction = written.replace(",", "").partition(".")
    if (len(whole) > 1 and whole[0] == "0") or len(whole) > 15 or (len(whole) > 7 and "," not in written):
        spoken = one_by_one(whole)
    else:
        spoken = cardinal(whole)
    return spoken + (" point " + " ".join(_DIGITS[int(digit)] for digit in fraction) if fraction else "")


def year(digits: str) -> str:
    """1984 -> nineteen eighty four; 2005 -> two thousand and five."""
    century, rest = int(digits[:2]), int(digits[2:])
    if century % 10 == 0 and rest < 10:
        return cardinal(digits)
    if rest == 0:
        return cardinal(digits[:2]) + " hundred"
    return cardinal(digits[:2]) + (" oh " if rest < 10 else " ") + cardinal(digits[2:])


def money(word: str, magnitude: str = "") -> str:
    """$3.50 -> three dollars and fifty cents; a magnitude comes before the currency."""
    match = re.search(rf"([$€£¥])({_NUMBER})", word)
    assert match, word
    (one, many, small), amount = CURRENCIES[match[1]], match[2]
    sign = "minus " if word[0] == "-" else ""
    whole, _, cents = amount.partition(".")
    if magnitude:
        return f"{sign}{digits_or_number(amount)} {magnitude} {many}"
    if len(cents) == 2 and small:
        dollars = f"{digits_or_number(whole)} {one if whole == '1' else many}"
        return sign + dollars + (f" and {cardinal(cents)} {small}" if cents != "00" else "")
    return f"{sign}{digits_or_number(amount)} {one if amount == '1' else many}"


def address(written: str) -> str:
    """www.example.org/help or me@example.org, without scheme and query."""
    bare = re.sub(r"^https?://|[?#].*$|/$", "", written, flags=re.IGNORECASE)
    bare = re.sub(r"^www\.", "", bare, flags=re.IGNORECASE)
    names = {".": " dot ", "/": " slash ", "@": " at ", "-": " dash ", "_": " underscore ", ":": " colon "}
    return " ".join(names.get(part) or _part(part) for part in re.split(r"([^\w'])", bare))


def _clock(match: re.Match[str], _: str) -> str:
    hour, minute, half = match[1], match[2], (match[3] or "").lower().replace(".", "")
    if minute in ("00", ""):
        minutes = "" if half else "o'clock"
    else:
        minutes = ("oh " if minute < "10" else "") + cardinal(minute)
    return f"{cardinal(hour)} {minutes} {_HALVES.get(half, '')}"


def _plain_number(match: re.Match[str], before: str) -> str:
    digits = match[0]
    if before.lower().strip(".,") in MONTHS and digits.isdigit() and 1 <= int(digits) <= 31:
        return ordinal(digits)
    return year(digits) if re.fullmatch(r"1[1-9]\d\d|20\d\d", digits) else digits_or_number(digits)


def _quantity(match: re.Match[str], _: str) -> str:
    number, unit = match[1], match[2]
    return digits_or_number(number) + " " + _unit(unit, number)


def _unit(unit: str, number: str) -> str:
    one, many = UNITS[unit] if unit in UNITS else UNITS[unit.lower()]
    return one if number == "1" else many


def _loose_unit(match: re.Match[str], before: str) -> str:
    number = re.fullmatch(rf"[-~]?({_NUMBER})", before)
    return _unit(match[0], number[1]) if number else _part(match[0])


def _ordinal(match: re.Match[str], _: str) -> str:
    return ordinal(match[1])


def _money(match: re.Match[str], _: str) -> str:
    return money(match[0])


def _iso_date(match: re.Match[str], _: str) -> str:
    return _date(match[1], match[2], match[3]) or _spelled_signs(match[0])


def _slash_date(match: re.Match[str], _: str) -> str:
    return _date(match[3], match[1], match[2]) or _spelled_signs(match[0])


def _date(years: str, month: str, day: str) -> str:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return ""
    return f"{FULL_MONTHS[int(month) - 1]} {ordinal(day)}, {year(years)}"


def _spelled_signs(written: str) -> str:
    return " ".join(_part(part) for part in re.split(r"(\D)", written))


def _fraction(match: re.Match[str], _: str) -> str:
    top, bottom = match[1], match[2]
    names = {"2": ("half", "halves"), "3": ("third", "thirds"), "4": ("quarter", "quarters")}
    if bottom in names:
        return f"{cardinal(top)} {names[bottom][top != '1']}"
    return f"{digits_or_number(top)} over {digits_or_number(bottom)}"


def _range(match: re.Match[str], _: str) -> str:
    first, last = match[1], match[2]
    if len(first) >= 3 and len(last) == 4 and not re.match(r"1[1-9]|20", first):
        return f"{one_by_one(first)}, {one_by_one(last)}"
    say = year if re.fullmatch(r"(?:1[1-9]|20)\d\d", first) and len(last) == 4 else digits_or_number
    return f"{say(first)} to {say(last)}"


def _decade(match: re.Match[str], _: str) -> str:
    spoken = year(match[1]) if len(match[1]) == 4 else cardinal(match[1])
    return spoken[:-1] + "ies" if spoken.endswith("y") else spoken + "s"


def _phone(match: re.Match[str], _: str) -> str:
    return ", ".join(one_by_one(group) for group in re.findall(r"\d+", match[0]))


_HALVES = {"am": "ay em", "pm": "pee em"}
_UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
_SHAPES: list[tuple[re.Pattern[str], Callable[[re.Match[str], str], str]]] = [
    (re.compile(r"(\d{1,2}):(\d\d)([ap]\.?m\.?)?", re.IGNORECASE), _clock),
    (re.compile(r"([1-9]|1[0-2])()([ap]\.?m\.?)", re.IGNORECASE), _clock),
    (re.compile(r"(\d{4})-(\d\d)-(\d\d)"), _iso_date),
    (re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})"), _slash_date),
    (re.compile(r"(\d{1,15})(?:st|nd|rd|th)", re.IGNORECASE), _ordinal),
    (re.compile(r"'?(\d{4}|\d0)'?s"), _decade),
    (re.compile(rf"[$€£¥](?:{_NUMBER})"), _money),
    (re.compile(rf"({_NUMBER})({_UNIT})"), _quantity),
    (re.compile(_UNIT), _loose_unit),
    (re.compile(r"(\d{1,6})/(\d{1,6})"), _fraction),
    (re.compile(r"(\d{1,9})[-–](\d{1,9})"), _range),
    (re.compile(r"\+?\d+(?:-\d+){2,}|\+\d{8,}"), _phone),
    (re.compile(_NUMBER), _plain_number),
]
