"""Regular expressions of numbers within limits, as JSON writes them."""

from __future__ import annotations

from decimal import Decimal

MOST_DIGITS = 15
"""Digits before the point, and after it. A double holds 15 decimal digits exactly."""
LARGEST = 10**MOST_DIGITS - 1
_FRACTION = rf"(?:\.\d{{1,{MOST_DIGITS}}})?"
_MORE = rf"\d{{0,{MOST_DIGITS - 1}}}"
_NEVER = "[^\0-\U0010ffff]"
NUMBER = rf"-?(?:0|[1-9]{_MORE}){_FRACTION}(?:[eE][+-]?\d{{1,2}})?"
"""Any number."""


def integers(least: int, most: int) -> str:
    """Return the expression of the integers from ``least`` to ``most``."""
    options = [f"-(?:{_natural(max(1, -most), -least)})"] if least < 0 else []
    options += [_natural(max(0, least), most)] if most >= 0 else []
    return _either(options)


def decimals(least: Decimal, most: Decimal) -> str:
    """Return the expression of the decimal numbers from ``least`` to ``most``, without exponents."""
    options = [f"-(?:{_positive(max(Decimal(0), -most), -least)})"] if least < 0 else []
    options += [_positive(max(Decimal(0), least), most)] if most >= 0 else []
    return _either(options)


def _either(options: list[str]) -> str:
    return "|".join(f"(?:{one})" for one in options if one) or _NEVER


def _natural(least: int, most: int) -> str:
    """Return the expression of the integers in a range that begins at 0 or later; empty for an empty range."""
    options: list[str] = []
    while least <= most:
        last = min(most, 10 ** len(str(least)) - 1)
        options.append(_between(str(least), str(last)))
        least = last + 1
    return "|".join(options)


def _between(low: str, high: str) -> str:
    """Return the expression of the numbers between two of equally many digits."""
    if not low:
        return ""
    first, last = low[0], high[0]
    if first == last:
        return first + _between(low[1:], high[1:])
    rest = len(low) - 1
    zeros, nines = "0" * rest, "9" * rest
    options: list[str] = []
    if low[1:] != zeros:
        options.append(first + _between(low[1:], nines))
        first = chr(ord(first) + 1)
    if high[1:] != nines:
        options.append(last + _between(zeros, high[1:]))
        last = chr(ord(last) - 1)
    if first <= last:
        options.append(f"[{first}-{last}]" + (rf"\d{{{rest}}}" if rest else ""))
    return f"(?:{'|'.join(options)})"


def _positive(least: Decimal, most: Decimal) -> str:
    """Return the expression of the decimal numbers in a range that begins at 0 or later."""
    if least > most:
        return ""
    low, low_fraction = _split(least)
    high, high_fraction = _split(most)
    if low == high:
        return f"{low}(?:{_fraction_between(low_fraction, high_fraction)})"
    between = _natural(low + 1, high - 1)
    options = [f"{low}(?:{_fraction_from(low_fraction)})", f"{high}(?:{_fraction_to(high_fraction)})"]
    options += [f"(?:{between}){_FRACTION}"] if between else []
    return "|".join(options)


def _split(number: Decimal) -> tuple[int, str]:
    """Return the integer before the point, and the digits after it."""
    whole, _, fraction = f"{number:f}".partition(".")
    return int(whole), fraction.rstrip("0")


def _fraction_from(digits: str) -> str:
    return rf"\.{_digits_from(digits)}" if digits else _FRACTION


def _fraction_to(digits: str) -> str:
    return rf"(?:\.{_digits_to(digits)})?" if digits else r"(?:\.0)?"


def _fraction_between(low: str, high: str) -> str:
    if not low:
        return _fraction_to(high)
    width = max(len(low), len(high))
    return rf"\.{_digits_between(low.ljust(width, '0'), high.ljust(width, '0'))}"


def _digits_from(digits: str) -> str:
    if not digits:
        return _MORE
    larger = f"|[{int(digits[0]) + 1}-9]{_MORE}" if digits[0] < "9" else ""
    return f"(?:{digits[0]}{_digits_from(digits[1:])}{larger})"


def _digits_to(digits: str) -> str:
    smaller = f"|[0-{int(digits[0]) - 1}]{_MORE}" if digits[0] > "0" else ""
    rest = f"(?:{_digits_to(digits[1:])})?" if digits[1:] else ""
    return f"(?:{digits[0]}{rest}{smaller})"


def _digits_between(low: str, high: str) -> str:
    """Return the expression of the fractions between two of equally many digits."""
    if not low:
        return ""
    if low[0] == high[0]:
        return low[0] + _digits_between(low[1:], high[1:])
    options = [low[0] + _digits_from(low[1:].rstrip("0"))]
    options.append(high[0] + (f"(?:{_digits_to(rest)})?" if (rest := high[1:].rstrip("0")) else ""))
    if int(high[0]) - int(low[0]) > 1:
        options.append(f"[{int(low[0]) + 1}-{int(high[0]) - 1}]{_MORE}")
    return f"(?:{'|'.join(options)})"
