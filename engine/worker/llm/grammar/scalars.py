"""Strings and numbers: automata of their JSON texts, and the grammar rules of an automaton."""

from __future__ import annotations

from decimal import Decimal
from math import ceil, floor, isfinite

from engine.worker.llm.grammar import numbers
from engine.worker.llm.grammar.automaton import Automaton, Steps, determined
from engine.worker.llm.grammar.characters import ESCAPES, PLAIN, Characters
from engine.worker.llm.grammar.formats import FORMATS, UNSUPPORTED
from engine.worker.llm.grammar.gbnf import Alternative, Grammar, Reference, literal
from engine.worker.llm.grammar.located import Located
from engine.worker.llm.grammar.regex import BadPattern

QUOTE = literal('"')
_ESCAPED = Characters.in_text("".join(ESCAPES.values()))
_CHARACTER: tuple[Alternative, ...] = ((PLAIN.gbnf,), (literal("\\"), _ESCAPED.gbnf))
MOST_MULTIPLE = 500
_NUDGE = 6
"""Decimal places after the last one of an exclusive limit: the next number that may be written."""


def string_rule(schema: Located, grammar: Grammar, steps: Steps) -> Reference:
    """Return the rule of a string schema. Raises SchemaError."""
    least, most = schema.limits("minLength", "maxLength")
    patterns = _patterns(schema)
    if not patterns:
        character = grammar.rule(*_CHARACTER)
        return grammar.rule((QUOTE, *grammar.repeated((character,), least, most), QUOTE))
    if least or most is not None:
        patterns.append((f"^(?:.|[\\n\\r\\u2028\\u2029]){{{least},{'' if most is None else most}}}$", "pattern"))
    whole: Automaton | None = None
    for pattern, key in patterns:
        try:
            one = determined(pattern, steps)
            whole = one if whole is None else whole & one
        except BadPattern as reason:
            raise schema.error(str(reason), key) from None
    assert whole is not None
    return grammar.rule((QUOTE, _states(whole, grammar, quoted=True)))


def _patterns(schema: Located) -> list[tuple[str, str]]:
    """Return the patterns that a string must match, each with the keyword that requires it."""
    found = [] if (pattern := schema.text("pattern")) is None else [(pattern, "pattern")]
    format = schema.text("format")
    if format in UNSUPPORTED:
        raise schema.error(f"{format!r} is not supported. Use one of {', '.join(FORMATS)}, or a pattern", "format")
    return found + ([(f"^(?:{FORMATS[format]})$", "format")] if format in FORMATS else [])


def number_rule(schema: Located, is_integer: bool, grammar: Grammar, steps: Steps) -> Reference:
    """Return the rule of a number schema. Raises SchemaError."""
    multiple = schema.number("multipleOf")
    if multiple is not None and (multiple <= 0 or not isfinite(multiple)):
        raise schema.error("must be above 0", "multipleOf")
    limits = _limits(schema)
    is_integer = is_integer or (multiple is not None and multiple == int(multiple))
    try:
        whole = determined(f"^(?:{_expression(limits, is_integer)})$", steps)
        if multiple is not None and multiple != 1:
            whole &= _multiples(multiple, steps, is_integer)
    except BadPattern as reason:
        raise schema.error(f"the number {reason}") from None
    return _states(whole, grammar, quoted=False)


def _limits(schema: Located) -> tuple[Decimal | None, Decimal | None, bool, bool]:
    """Return the limits of a number, and whether each of them is exclusive."""
    least, below = schema.number("minimum"), schema.number("exclusiveMinimum")
    most, above = schema.number("maximum"), schema.number("exclusiveMaximum")
    for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        value = schema.number(key)
        if value is not None and not abs(value) <= numbers.LARGEST:
            raise schema.error(f"must be between -{numbers.LARGEST} and {numbers.LARGEST}", key)
        if value is not None and len(f"{Decimal(str(value)):f}".partition(".")[2]) > numbers.MOST_DIGITS - _NUDGE:
            raise schema.error(f"has more than {numbers.MOST_DIGITS - _NUDGE} decimal places", key)
    least_excluded = below is not None and (least is None or below >= least)
    most_excluded = above is not None and (most is None or above <= most)
    low = below if least_excluded else least
    high = above if most_excluded else most
    return _decimal(low), _decimal(high), least_excluded, most_excluded


def _decimal(value: float | None) -> Decimal | None:
    return None if value is None else Decimal(str(value))


def _expression(limits: tuple[Decimal | None, Decimal | None, bool, bool], is_integer: bool) -> str:
    least, most, least_excluded, most_excluded = limits
    if least is None and most is None and not is_integer:
        return numbers.NUMBER
    low = Decimal(-numbers.LARGEST) if least is None else least
    high = Decimal(numbers.LARGEST) if most is None else most
    if not is_integer:
        return numbers.decimals(_next(low, 1) if least_excluded else low, _next(high, -1) if most_excluded else high)
    first, last = ceil(low), floor(high)
    first += least_excluded and first == low
    last -= most_excluded and last == high
    return numbers.integers(first, last)


def _next(limit: Decimal, direction: int) -> Decimal:
    places = len(f"{limit:f}".partition(".")[2])
    return limit + direction * Decimal(1).scaleb(-places - _NUDGE)


def _multiples(multiple: float, steps: Steps, is_integer: bool) -> Automaton:
    """Return the automaton of the multiples of an integer, or of 0.1, 0.01 and so on. Raises BadPattern."""
    exact = Decimal(str(multiple)).normalize()
    if is_integer and exact == exact.to_integral_value() and exact <= MOST_MULTIPLE:
        return _multiples_of_integer(int(exact), steps)
    places = -int(exact.as_tuple().exponent)
    if exact.as_tuple().digits == (1,) and 0 < places <= numbers.MOST_DIGITS:
        return determined(rf"^-?\d{{1,16}}(?:\.\d{{1,{places}}})?$", steps)
    raise BadPattern(f"can be a multiple of integers up to {MOST_MULTIPLE} and of 0.1, 0.01 and so on only")


def _multiples_of_integer(divisor: int, steps: Steps) -> Automaton:
    """Return the automaton of the integers that a divisor divides: its states are the start and the remainders."""
    automaton = Automaton(steps)
    automaton.add(accepting=False)
    for remainder in range(divisor):
        automaton.add(accepting=not remainder)
    automaton.move(0, Characters.in_text("-"), 0)
    for state in range(divisor + 1):
        for digit in range(10):
            remainder = (max(0, state - 1) * 10 + digit) % divisor
            automaton.move(state, Characters.in_text(str(digit)), 1 + remainder)
    return automaton


def _states(automaton: Automaton, grammar: Grammar, quoted: bool) -> Reference:
    """Add the rules of an automaton. A text that is ``quoted`` is written with JSON's escapes and the closing quote."""
    names = [grammar.reserve() for _ in automaton.moves]
    for state, moves in enumerate(automaton.moves):
        alternatives: list[Alternative] = []
        for to, characters in moves.items():
            if plain := (characters & PLAIN if quoted else characters):
                alternatives.append((plain.gbnf, names[to]))
            escaped = [letter for one, letter in ESCAPES.items() if quoted and one in characters]
            if escaped:
                alternatives.append((literal("\\"), Characters.in_text("".join(escaped)).gbnf, names[to]))
        if state in automaton.accepting:
            alternatives.append((QUOTE,) if quoted else ())
        grammar.define(names[state], alternatives)
    return names[0]
