"""Numbers, dates, times and amounts as words, in German, Spanish, French and Italian.

A text is rewritten in two steps: short forms become phrases (``14:30`` becomes ``14 Uhr 30``), and then each number
becomes words. The words come from Unicode's rules for spelling numbers (CLDR RBNF) in the package ``unicode-rbnf``.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from engine.worker.tts.number_forms import LANGUAGES, LanguageForms

PACKAGE = "unicode_rbnf"
_INTEGER = r"(?:\d{1,3}(?:[.\u00a0\u202f]\d{3})+(?!\d)|\d+)"
_AMOUNT = rf"{_INTEGER}(?:,\d+)?"
_RANGE = r"(?<![\d-])(\d{1,2}|\d{4})\s?[-–]\s?(\d{1,2}|\d{4})(?![\d-])"
_SIGNS = r"US\$|[$€£]"
_CODES = r"EUR|USD|GBP|CHF"
_LONGEST = 12
"""Maximum digits of a number that is said as one number. Longer numbers are said digit by digit."""

Rewrite = Callable[[re.Match[str]], str]


def number_words(language: str) -> Callable[[str], str] | None:
    """Return a function that spells the numbers of a text. ``language`` is a BCP 47 tag.

    Returns None if the language has no rules here, or if the package ``unicode-rbnf`` is not installed.
    """
    forms = LANGUAGES.get(language.split("-")[0].lower())
    if forms is None or importlib.util.find_spec(PACKAGE) is None:
        return None
    return _Speller(forms).spell


class _Speller:
    def __init__(self, forms: LanguageForms) -> None:
        self._forms = forms
        library: Any = importlib.import_module(PACKAGE)
        self._engine: Any = library.RbnfEngine.for_language(forms.tag)
        self._purposes: Any = library.FormatPurpose
        self.words = lru_cache(maxsize=4096)(self._words)
        rewrites = [*self._short_forms(), *self._numbers()]
        self._rewrites = [(re.compile(pattern), rewrite) for pattern, rewrite in rewrites]

    def _short_forms(self) -> list[tuple[str, Rewrite]]:
        forms = self._forms
        return [
            (r"\b(?P<y>\d{4})-(?P<m>[01]\d)-(?P<d>[0-3]\d)\b", self._date),
            (r"(?<![\w./])(?P<d>[0-3]?\d)(?P<s>[./])(?P<m>[01]?\d)(?P=s)(?P<y>\d{4})\b", self._date),
            (forms.time, self._time),
            (rf"(?<![\w$€£])(?P<sign>{_SIGNS})\s?(?P<n>{_AMOUNT})", self._money),
            (rf"(?<![\w.,])(?P<n>{self._integer}(?:,\d+)?)\s?(?P<sign>{_SIGNS}|(?:{_CODES})\b)", self._money),
            (r"(?<=\d)\s?%", lambda _: f" {forms.percent}"),
            (r"(?<![\w)])[-−](?=\d)", lambda _: f"{forms.minus} "),
            (_RANGE, lambda found: f"{found[1]} {forms.to} {found[2]}"),
        ]

    def _numbers(self) -> list[tuple[str, Rewrite]]:
        number = (
            rf"(?P<before>\b\w+['’ ]|\W|^)(?<![\w.,:/])(?P<n>{self._integer})"
            r"(?:,(?P<part>\d+)|\.(?P<dot>\d{1,2}))?(?!\w|[.,:/]\d)(?P<after>\s+[^\W\d]+)?"
        )
        ordinal = self._forms.ordinal.replace("MONTH", "|".join(self._forms.months))
        return [(ordinal, self._ordinal), (number, self._number)]

    @property
    def _integer(self) -> str:
        return _INTEGER.replace(r"\u202f]", r"\u202f ]") if self._forms.spaced else _INTEGER

    def spell(self, text: str) -> str:
        """Return the text with its numbers as words."""
        if not any(map(str.isdigit, text)):
            return text
        for pattern, rewrite in self._rewrites:
            text = pattern.sub(rewrite, text)
        return text

    def _date(self, found: re.Match[str]) -> str:
        month = int(found["m"])
        if not 1 <= month <= 12 or not 1 <= int(found["d"]) <= 31:
            return found[0]
        return self._forms.date.format(day=int(found["d"]), month=self._forms.months[month - 1], year=found["y"])

    def _time(self, found: re.Match[str]) -> str:
        groups = found.groupdict()
        hour, minute = int(groups["h"]), int(groups["m"] or groups.get("m2") or 0)
        if hour > 24 or minute > 59:
            return found[0]
        return self._forms.clock(hour, minute)

    def _money(self, found: re.Match[str]) -> str:
        whole, _, part = re.sub(r"[.\s](?=\d{3})", "", found["n"]).partition(",")
        one, many = self._forms.currencies[found["sign"]]
        name = one if int(whole) == 1 else many
        if len(part) == 2:
            cents = f"{self._forms.cents}{int(part)}" if int(part) else ""
            return f"{whole} {name}{cents}"
        million = self._forms.of if int(whole) and int(whole) % 10**6 == 0 else ""
        return f"{whole}{part and ','}{part} {million}{name}"

    def _ordinal(self, found: re.Match[str]) -> str:
        before, after = found["before"] or "", found["suffix"]
        return before + self.words(int(found["n"]), self._forms.ordinal_rule(before, after))

    def _number(self, found: re.Match[str]) -> str:
        before, after = found["before"], found["after"] or ""
        digits = re.sub(r"\D", "", found["n"])
        part = found["part"] or found["dot"]
        if len(digits) > _LONGEST or (len(digits) > 1 and digits[0] == "0" and not part):
            said = self._digits(digits)
        else:
            rule = "" if part else self._forms.cardinal_rule(int(digits), before, after, digits == found["n"])
            said = self.words(int(digits), rule)
        if part:
            said = f"{said} {self._forms.point} {self._fraction(part)}"
        return f"{before}{said}{after}"

    def _fraction(self, digits: str) -> str:
        if self._forms.digitwise or len(digits) > 3:
            return self._digits(digits)
        zeros = len(digits) - len(digits.lstrip("0"))
        spoken = [self.words(0)] * zeros + ([self.words(int(digits))] if int(digits) else [])
        return " ".join(spoken)

    def _digits(self, digits: str) -> str:
        return " ".join(self.words(int(digit)) for digit in digits)

    def _words(self, n: int, rule: str = "") -> str:
        """Spell a number by a rule of CLDR, by default that of numbers without a noun."""
        purpose = next((one for name, one in self._by_prefix if rule.startswith(name)), self._purposes.CARDINAL)
        spelled = self._engine.format_number(n, purpose)
        texts = spelled.text_by_ruleset
        return texts.get(f"spellout-{rule or 'numbering'}", spelled.text).replace("\u00ad", "")

    @property
    def _by_prefix(self) -> list[tuple[str, Any]]:
        return [("ordinal", self._purposes.ORDINAL), ("numbering-year", self._purposes.YEAR)]
