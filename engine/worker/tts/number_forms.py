"""The forms in which German, Spanish, French and Italian write and say dates, times, amounts and ordinals.

Grammar is approximate: the gender of a noun is guessed from its ending, with lists of frequent exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_COLON_TIME = r"(?<![\w.,:])(?P<h>\d{1,2}):(?P<m>\d{2})(?![\w:])"


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageForms:
    """What the rules for numbers need to know about a language."""

    tag: str
    months: tuple[str, ...]
    date: str
    """Format of a date with ``day``, ``month`` (its name) and ``year``."""
    time: str
    """Pattern of a time of day, with the groups ``h`` and ``m``."""
    clock: Callable[[int, int], str]
    """Returns the spoken form of an hour and a minute, with digits."""
    ordinal: str
    """Pattern of an ordinal, with the groups ``before``, ``n`` and ``suffix``; MONTH is any month."""
    ordinal_rule: Callable[[str, str], str]
    """Returns CLDR's rule for an ordinal, by the word before it and its suffix."""
    cardinal_rule: Callable[[int, str, str, bool], str]
    """Returns CLDR's rule for a number, by its value, the words around it, and whether its digits are not grouped."""
    currencies: Mapping[str, tuple[str, str]]
    """Names of currencies, singular and plural, by sign and code."""
    cents: str = " "
    """What stands between a currency and its cents."""
    of: str = ""
    """What stands between millions and a currency."""
    minus: str
    point: str
    percent: str
    to: str
    digitwise: bool = False
    """Whether decimals are said digit by digit."""
    spaced: bool = False
    """Whether spaces group the digits of a number."""


def _currencies(euro: str, dollar: str, pound: str, franc: str) -> Mapping[str, tuple[str, str]]:
    """Each argument is the singular and the plural, separated by a slash."""
    names = [(*name.split("/"), name)[:2] for name in (euro, dollar, pound, franc)]
    keys = (("€", "EUR"), ("$", "US$", "USD"), ("£", "GBP"), ("CHF",))
    return {key: (one, many) for group, (one, many) in zip(keys, names, strict=True) for key in group}


def _word(text: str) -> str:
    return re.sub(r"[\W\d]", "", text).lower()


def _split(words: str) -> tuple[str, ...]:
    return tuple(words.split())


# ---- German ----

_DE_NOT_FEMININE = _split("name ende auge interesse käse junge kunde kollege gedanke buchstabe")
_DE_DATIVE = _split("in an auf von mit bei nach zu seit aus vor")
_DE_ARTICLES = "am|im|zum|vom|beim|den|dem|des|der|die|das|seit|bis|ab|und|oder|ihr|mein|sein|unser"


def _german_clock(hour: int, minute: int) -> str:
    return f"{hour} Uhr {minute}" if minute else f"{hour} Uhr"


def _german_ordinal(before: str, _: str) -> str:
    words = before.lower().split()
    if not words or not re.search(rf"\b(?:{_DE_ARTICLES})\b", words[-1]):
        return "ordinal-r"
    dative = len(words) > 1 and words[-2] in _DE_DATIVE
    return "ordinal" if words[-1] in ("der", "die", "das") and not dative else "ordinal-n"


def _german_cardinal(n: int, before: str, after: str, plain: bool) -> str:
    noun = after.strip()
    if n == 1 and noun[:1].isupper():
        feminine = noun.endswith(("e", "ung", "heit", "keit", "tion")) and noun.lower() not in _DE_NOT_FEMININE
        return "cardinal-feminine" if feminine else "cardinal-masculine"
    return "numbering-year" if plain and 1100 <= n <= 1999 and not noun[:1].isupper() else ""


GERMAN = LanguageForms(
    tag="de",
    months=_split("Januar Februar März April Mai Juni Juli August September Oktober November Dezember"),
    date="{day}. {month} {year}",
    time=r"(?<![\w.,:])(?P<h>\d{1,2})(?::(?P<m>\d{2})(?![\w:])(?:\s?Uhr\b)?|\.(?P<m2>\d{2})\s?Uhr\b)",
    clock=_german_clock,
    ordinal=(
        rf"(?P<before>(?:\b\w+ )?\b(?i:{_DE_ARTICLES}) )?(?<!\w)(?P<n>\d{{1,3}})(?P<suffix>\.)"
        r"(?=\s(?:MONTH|(?:bis|und|oder) \d+\.)|(?(before)\s[A-ZÄÖÜ]|(?!)))"
    ),
    ordinal_rule=_german_ordinal,
    cardinal_rule=_german_cardinal,
    currencies=_currencies("Euro", "Dollar", "Pfund", "Franken"),
    minus="minus",
    point="Komma",
    percent="Prozent",
    to="bis",
    digitwise=True,
)

# ---- Spanish ----

_ES_MASCULINE = _split("día días problema problemas mapa planeta planetas programa programas sistema tema idioma")
_ES_FEMININE = _split("vez veces noche noches tarde tardes clase clases calle calles mujer mujeres manos")
_ES_NO_NOUN = _split("de y a en con por o para que es la el del las los se no si pero como entre")


def _spanish_clock(hour: int, minute: int) -> str:
    return f"{hour} y {minute}" if minute else f"{hour}"


def _spanish_cardinal(n: int, before: str, after: str, _: bool) -> str:
    noun = _word(after)
    if _word(before) in ("la", "las"):
        return "cardinal-feminine"
    if not noun or noun in _ES_NO_NOUN:
        return ""
    feminine = noun.endswith(("a", "as", "ión", "iones", "dad", "dades")) and noun not in _ES_MASCULINE
    return "cardinal-feminine" if feminine or noun in _ES_FEMININE else "cardinal-masculine"


def _spanish_ordinal(_: str, suffix: str) -> str:
    adjective = "ordinal-masculine-adjective" if suffix.endswith("er") else "ordinal-masculine"
    return "ordinal-feminine" if suffix.endswith("ª") else adjective


SPANISH = LanguageForms(
    tag="es",
    months=_split("enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"),
    date="{day} de {month} de {year}",
    time=_COLON_TIME + r"(?:\s?h(?:oras)?\b)?",
    clock=_spanish_clock,
    ordinal=r"(?P<before>)(?<![\w.,])(?P<n>\d{1,4})(?P<suffix>\.?(?:er|[ºª])|(?<=\b1)(?= de (?:MONTH)))(?!\w)",
    ordinal_rule=_spanish_ordinal,
    cardinal_rule=_spanish_cardinal,
    currencies=_currencies("euro/euros", "dólar/dólares", "libra/libras", "franco/francos"),
    cents=" con ",
    of="de ",
    minus="menos",
    point="coma",
    percent="por ciento",
    to="a",
)

# ---- French ----

_FR_FEMININE = _split(
    "heure heures minute minutes seconde secondes semaine semaines fois page pages personne personnes "
    "femme femmes année années voiture voitures place places tasse tasses"
)


def _french_clock(hour: int, minute: int) -> str:
    hours = "heure" if hour < 2 else "heures"
    return f"{hour} {hours} {minute}" if minute else f"{hour} {hours}"


def _french_cardinal(_: int, __: str, after: str, ___: bool) -> str:
    noun = _word(after)
    return "cardinal-feminine" if noun in _FR_FEMININE or noun.endswith(("tion", "tions", "ette", "ettes")) else ""


def _french_ordinal(_: str, suffix: str) -> str:
    return "ordinal-feminine" if suffix in ("re", "ère") else "ordinal-masculine"


FRENCH = LanguageForms(
    tag="fr",
    months=_split("janvier février mars avril mai juin juillet août septembre octobre novembre décembre"),
    date="{day} {month} {year}",
    time=r"(?<![\w.,:])(?P<h>\d{1,2})(?:\s?h(?:\s?(?P<m>\d{2}))?|:(?P<m2>\d{2}))(?![\w:])",
    clock=_french_clock,
    ordinal=r"(?P<before>)(?<![\w.,])(?P<n>\d{1,4})(?P<suffix>er|re|ère|e|ème|(?<=\b1)(?= (?:MONTH)))(?!\w)",
    ordinal_rule=_french_ordinal,
    cardinal_rule=_french_cardinal,
    currencies=_currencies("euro/euros", "dollar/dollars", "livre/livres", "franc/francs"),
    of="de ",
    minus="moins",
    point="virgule",
    percent="pour cent",
    to="à",
    spaced=True,
)

# ---- Italian ----

_IT_MASCULINE = _split("problema sistema programma tema clima pianeta")


def _italian_clock(hour: int, minute: int) -> str:
    return f"{hour} e {minute}" if minute else f"{hour}"


def _italian_cardinal(n: int, before: str, after: str, _: bool) -> str:
    noun = _word(after)
    if n != 1 or (not noun and "l'" not in before):
        return ""
    feminine = noun.endswith(("a", "ione", "tà")) and noun not in _IT_MASCULINE
    if feminine or re.search(r"l['’]$", before):
        return "cardinal-feminine"
    return "" if re.match(r"z|gn|ps|s[^aeiou]", noun) else "cardinal-masculine"


def _italian_ordinal(_: str, suffix: str) -> str:
    return "ordinal-feminine" if suffix == "ª" else "ordinal-masculine"


ITALIAN = LanguageForms(
    tag="it",
    months=_split("gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre"),
    date="{day} {month} {year}",
    time=r"(?<![\w.,:])(?P<h>\d{1,2})(?::(?P<m>\d{2})|(?<=\bore \d\d)\.(?P<m2>\d{2}))(?![\w:])",
    clock=_italian_clock,
    ordinal=r"(?P<before>)(?<![\w.,])(?P<n>\d{1,4})(?P<suffix>[ºª°](?!\s?[CF]\b)|(?<=\b1)(?= (?:MONTH)))(?!\w)",
    ordinal_rule=_italian_ordinal,
    cardinal_rule=_italian_cardinal,
    currencies=_currencies("euro", "dollaro/dollari", "sterlina/sterline", "franco/franchi"),
    cents=" e ",
    of="di ",
    minus="meno",
    point="virgola",
    percent="per cento",
    to="a",
)

LANGUAGES = {forms.tag: forms for forms in (GERMAN, SPANISH, FRENCH, ITALIAN)}
