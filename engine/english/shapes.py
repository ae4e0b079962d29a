"""Words that a pattern tells: times, dates, amounts, quantities, fractions, ranges, telephone numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.english.fractions import part_of
from engine.english.letters import spell_part
from engine.english.lexicon import FULL_MONTHS, MONTHS, UNITS
from engine.english.numbers import NUMBER, cardinal, digits_or_number, money, one_by_one, ordinal, year


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
    number = re.fullmatch(rf"[-~]?({NUMBER})", before)
    return _unit(match[0], number[1]) if number else spell_part(match[0])


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
    return " ".join(spell_part(part) for part in re.split(r"(\D)", written))


def _fraction(match: re.Match[str], _: str) -> str:
    top, bottom = match[1], match[2]
    if bottom in ("2", "3", "4"):
        return part_of(top, bottom)
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
SHAPES: list[tuple[re.Pattern[str], Callable[[re.Match[str], str], str]]] = [
    (re.compile(r"(\d{1,2}):(\d\d)([ap]\.?m\.?)?", re.IGNORECASE), _clock),
    (re.compile(r"([1-9]|1[0-2])()([ap]\.?m\.?)", re.IGNORECASE), _clock),
    (re.compile(r"(\d{4})-(\d\d)-(\d\d)"), _iso_date),
    (re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})"), _slash_date),
    (re.compile(r"(\d{1,15})(?:st|nd|rd|th)", re.IGNORECASE), _ordinal),
    (re.compile(r"'?(\d{4}|\d0)'?s"), _decade),
    (re.compile(rf"[$€£¥](?:{NUMBER})"), _money),
    (re.compile(rf"({NUMBER})({_UNIT})"), _quantity),
    (re.compile(_UNIT), _loose_unit),
    (re.compile(r"(\d{1,6})/(\d{1,6})"), _fraction),
    (re.compile(r"(\d{1,9})[-–](\d{1,9})"), _range),
    (re.compile(r"\+?\d+(?:-\d+){2,}|\+\d{8,}"), _phone),
    (re.compile(NUMBER), _plain_number),
]
