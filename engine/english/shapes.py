"""Spells words that match a pattern: times, dates, amounts, quantities, fractions, ranges, versions, numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.english.fractions import part_of
from engine.english.letters import spell_part
from engine.english.lexicon import CURRENCIES, DIALED, FULL_MONTHS, MONTHS, SHORT_MAGNITUDES, SHORT_TIMES, UNITS
from engine.english.numbers import NUMBER, cardinal, digits_or_number, money, one_by_one, ordinal, year
from engine.english.telephone import dialed


def _clock(match: re.Match[str], _: str) -> str:
    hour, minute, half = match[1], match[2], (match[3] or "").lower().replace(".", "")
    if minute in ("00", ""):
        minutes = "" if half else "o'clock"
    else:
        minutes = ("oh " if minute < "10" else "") + cardinal(minute)
    return f"{cardinal(hour)} {minutes} {_HALVES.get(half, '')}"


def _plain_number(match: re.Match[str], before: str) -> str:
    digits = match[0]
    if before.lower().strip(".,:") in DIALED and digits.isdigit() and len(digits) > 2:
        return one_by_one(digits)
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
    number = re.fullmatch(rf"[-~±]?(?:(?:{NUMBER})[-–])?({NUMBER})(?:[eE]-?\d+)?", before)
    return _unit(match[0], number[1]) if number else spell_part(match[0])


def _ordinal(match: re.Match[str], _: str) -> str:
    return ordinal(match[1].replace(",", ""))


def _money(match: re.Match[str], _: str) -> str:
    """Spell an amount of money, such as $5M, €25/hour or $0.15/kWh."""
    amount, magnitude, unit = match.groups()
    return money(amount, SHORT_MAGNITUDES.get(magnitude or "", "")) + _per(unit)


def _money_after(match: re.Match[str], _: str) -> str:
    amount, sign, unit = match.groups()
    said = f"{digits_or_number(amount)} cents" if sign == "¢" else money(sign + amount)
    return said + _per(unit)


def _per(unit: str | None) -> str:
    if not unit:
        return ""
    return f" per {SHORT_TIMES.get(unit) or (_unit(unit, '1') if unit in UNITS else spell_part(unit))}"


def _foreign_dollars(match: re.Match[str], _: str) -> str:
    return f"{digits_or_number(match[2])} {' '.join(map(spell_part, match[1]))} dollars"


def _short_amount(match: re.Match[str], _: str) -> str:
    return f"{digits_or_number(match[1])} {SHORT_MAGNITUDES[match[2]]}"


def _times(match: re.Match[str], _: str) -> str:
    return f"{digits_or_number(match[1])} times"


def _exponent(match: re.Match[str], _: str) -> str:
    power = match[2].lstrip("+").replace("-", "minus ")
    power = power.replace(power.split()[-1], cardinal(power.split()[-1]))
    return f"{digits_or_number(match[1])} times ten to the power of {power}"


def _ratio(match: re.Match[str], _: str) -> str:
    return f"{cardinal(match[1])} to {cardinal(match[2])}"


def _span(match: re.Match[str], _: str) -> str:
    """Spell a range of amounts, times or decimals; "" if one side is none of these."""
    first, last = match.groups()
    if first[0] in CURRENCIES and re.fullmatch(NUMBER, last):
        return f"{digits_or_number(first[1:])} to {money(first[0] + last)}"
    sides = [_value(first), _value(last)]
    return " to ".join(sides) if all(sides) else ""


def _value(text: str) -> str:
    return next((say(match, "") for pattern, say in _VALUES if (match := pattern.fullmatch(text))), "")


def _version(match: re.Match[str], _: str) -> str:
    """Spell a version: v2.0.1-rc1 -> version two point zero point one are see one."""
    mark, numbers, suffix = match.groups()
    spoken = " point ".join(digits_or_number(one) for one in numbers.split("."))
    return f"{'version ' if mark else ''}{spoken}{' ' + spell_part(suffix) if suffix else ''}"


def _ip(match: re.Match[str], _: str) -> str:
    names = {".": "dot", ":": "colon", "/": "slash"}
    parts = re.split(r"([.:/])", match[0])
    return " ".join(names.get(part) or one_by_one(part).replace(",", "") for part in parts)


def _sharp(match: re.Match[str], _: str) -> str:
    return f"{spell_part(match[1])} sharp"


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
    return dialed(match[0])


_HALVES = {"am": "ay em", "pm": "pee em"}
_UNIT = "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
_MAGNITUDE = "|".join(SHORT_MAGNITUDES)
_SIGN = "[$€£¥₹]"
_Shapes = list[tuple[re.Pattern[str], Callable[[re.Match[str], str], str]]]
_VALUES: _Shapes = [
    (re.compile(r"(\d{1,2}):(\d\d)([ap]\.?m\.?)?", re.IGNORECASE), _clock),
    (re.compile(r"([1-9]|1[0-2])()([ap]\.?m\.?)", re.IGNORECASE), _clock),
    (re.compile(rf"({_SIGN}(?:{NUMBER}))({_MAGNITUDE})?(?:/([a-zA-Z]+))?"), _money),
    (re.compile(rf"({NUMBER})({_UNIT})"), _quantity),
    (re.compile(rf"({NUMBER})({_MAGNITUDE})"), _short_amount),
    (re.compile(NUMBER), _plain_number),
]
"""Patterns that a range may have on each side."""
SHAPES: _Shapes = [
    *_VALUES[:2],
    (re.compile(r"(\d{1,4}):(\d)"), _ratio),
    (re.compile(r"(\d{4})-(\d\d)-(\d\d)"), _iso_date),
    (re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})"), _slash_date),
    (re.compile(r"(\d{1,15}|\d{1,3}(?:,\d{3})+)(?:st|nd|rd|th)", re.IGNORECASE), _ordinal),
    (re.compile(r"'?(\d{4}|\d0)'?s"), _decade),
    *_VALUES[2:5],
    (re.compile(rf"({NUMBER})([€£₹¢])(?:/([a-zA-Z]+))?"), _money_after),
    (re.compile(rf"(US|CA|AU|NZ|HK|A|C)\$({NUMBER})"), _foreign_dollars),
    (re.compile(_UNIT), _loose_unit),
    (re.compile(rf"({NUMBER})x"), _times),
    (re.compile(rf"({NUMBER})[eE]([-+]?\d{{1,4}})"), _exponent),
    (re.compile(r"(\d{1,6})/(\d{1,6})"), _fraction),
    (re.compile(r"(\d{1,9})[-–](\d{1,9})"), _range),
    (re.compile(r"\+?\d+(?:-\d+){2,}|\+\d{8,}|\d{3}\.\d{3}\.\d{4}|\(\d{3}\)\d{3}[-.]\d{4}"), _phone),
    (re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?:[:/]\d{1,5})?"), _ip),
    (re.compile(r"(v)(\d+(?:\.\d+)*)(?:-([a-z]\w*))?"), _version),
    (re.compile(r"(V)(\d+(?:\.\d+)+)(?:-([a-z]\w*))?"), _version),
    (re.compile(r"()(\d+(?:\.\d+){2,})(?:-([a-z]\w*))?"), _version),
    (re.compile(r"([^-–]+)[-–]([^-–]+)"), _span),
    (re.compile(r"([CF])#"), _sharp),
    *_VALUES[5:],
]
