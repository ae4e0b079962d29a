"""A grammar in GBNF, built rule by rule and written as text."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from engine.errors import SchemaError

MOST_SYMBOLS = 40_000
"""Maximum symbols of a grammar. llama.cpp reads that many in about 0.1 s, in the thread that serves all answers."""
MOST_CHARACTERS = 400_000
BLOCK = 256
"""Repetitions up to a limit are counted in blocks of this size, so that a large limit needs few rules."""


class Reference(str):
    """The name of a rule, as a symbol in another one. All other symbols are text and character classes of GBNF."""

    __slots__ = ()


Alternative = Sequence[str]
"""The symbols of one alternative of a rule."""


class Grammar:
    """The rules of a grammar. Raises SchemaError if there are too many."""

    def __init__(self) -> None:
        self._rules: dict[Reference, list[Alternative]] = {}
        self.widest = 0
        """The largest number of alternatives of a rule so far. May be set back to 0."""
        self._symbols = 0
        self._characters = 0

    def reserve(self) -> Reference:
        """Return the name of a rule that will be defined later."""
        name = Reference(f"r{len(self._rules)}")
        self._rules[name] = []
        return name

    def define(self, name: Reference, alternatives: Iterable[Alternative]) -> None:
        for one in alternatives:
            self._symbols += len(one) + 1
            self._characters += sum(map(len, one))
            if self._symbols > MOST_SYMBOLS or self._characters > MOST_CHARACTERS:
                raise SchemaError("JSON schema: is too large. Remove properties, values of enums, or length limits.")
            self._rules[name].append(one)
        self.widest = max(self.widest, len(self._rules[name]))

    def rule(self, *alternatives: Alternative) -> Reference:
        """Add a rule and return its name."""
        name = self.reserve()
        self.define(name, alternatives)
        return name

    def repeated(self, symbols: Alternative, least: int, most: int | None) -> Alternative:
        """Return the symbols for ``least`` to ``most`` repetitions; None: without a limit."""
        unit = self.rule(symbols)
        if most is None:
            loop = self.reserve()
            self.define(loop, ((unit, loop), ()))
            return (*self._exactly(unit, least), loop)
        return (*self._exactly(unit, least), *self._up_to(unit, most - least))

    def _exactly(self, unit: Reference, count: int) -> Alternative:
        """Return the symbols for a number of repetitions, as powers of two."""
        found: list[Reference] = []
        while count:
            if count % 2:
                found.append(unit)
            count //= 2
            unit = self.rule((unit, unit)) if count else unit
        return found

    def _up_to(self, unit: Reference, count: int) -> Alternative:
        """Return the symbols for up to a number of repetitions: whole blocks, and the rest one by one."""
        blocks, rest = divmod(count, BLOCK)
        singles: list[Alternative] = [()]
        for _ in range(BLOCK - 1 if blocks else rest):
            singles.append((self.rule((unit, *singles[-1]), ()),))
        found = singles[rest]
        block = self._exactly(unit, BLOCK) if blocks else ()
        for _ in range(blocks):
            found = (self.rule((*block, *found), singles[-1]),)
        return found

    def written(self, root: Reference, needed: Reference | None = None) -> str | None:
        """Return the text of the grammar of one rule; None if this rule, or one that is ``needed``, has no finite text.

        Alternatives without a finite text are left out.
        """
        finite = self._finite()
        if not finite.issuperset((root, needed or root)):
            return None
        lines = [f"root ::= {root}"]
        found = {root}
        left = deque(found)
        while left:
            name = left.popleft()
            kept = [one for one in self._rules[name] if finite.issuperset(_references(one))]
            lines.append(f"{name} ::= {' | '.join(map(_sequence, kept))}")
            new = [one for alternative in kept for one in _references(alternative) if one not in found]
            found.update(new)
            left.extend(dict.fromkeys(new))
        return "\n".join(lines)

    def _finite(self) -> set[Reference]:
        """Return the rules that have a finite text."""
        users = defaultdict[Reference, list[tuple[Reference, list[int]]]](list)
        finite = set[Reference]()
        left = deque[Reference]()
        for name, alternatives in self._rules.items():
            for one in alternatives:
                missing = set(_references(one))
                count = [len(missing)]
                for reference in missing:
                    users[reference].append((name, count))
                if not missing and name not in finite:
                    finite.add(name)
                    left.append(name)
        while left:
            for name, count in users[left.popleft()]:
                count[0] -= 1
                if not count[0] and name not in finite:
                    finite.add(name)
                    left.append(name)
        return finite


def literal(text: str) -> str:
    """Return a text as a symbol."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"


def _references(symbols: Alternative) -> list[Reference]:
    return [one for one in symbols if isinstance(one, Reference)]


def _sequence(symbols: Alternative) -> str:
    return " ".join(symbols) or '""'
