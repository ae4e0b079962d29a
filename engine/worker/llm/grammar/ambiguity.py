"""A limit on the number of ways in which the beginning of an answer can be read.

llama.cpp follows each of them, for each token of its vocabulary, in the thread that serves all answers. Alternatives
multiply where they are nested and begin alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.worker.llm.grammar.automaton import Steps
from engine.worker.llm.grammar.gbnf import Reference
from engine.worker.llm.grammar.located import Located

MOST_WAYS = 120
"""Maximum ways at a time. They take about 10 ms per token with a vocabulary of 50,000."""


@dataclass(frozen=True, slots=True)
class LeafGroup:
    """Alternatives that begin with the same character."""

    rules: Sequence[Reference]
    are_told_apart: bool
    """Whether their first members show which one it is, before any other alternatives within them."""


@dataclass(frozen=True, slots=True)
class _Place:
    schema: Located
    groups: Sequence[LeafGroup] = ()
    within: Sequence[Reference] = ()
    alternatives: int = 1


class Ambiguity:
    """Counts the ways for all rules of a schema."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._places: dict[Reference, _Place] = {}

    def add_choice(self, name: Reference, schema: Located, groups: Sequence[LeafGroup]) -> None:
        """Add the rule of a schema with several alternatives."""
        self._places[name] = _Place(schema, groups)

    def add_leaf(self, name: Reference, schema: Located, within: Sequence[Reference], alternatives: int) -> None:
        """Add the rule of a leaf, with the rules within it, one of which is read at a time.

        ``alternatives`` is the largest number of alternatives in its own rules.
        """
        self._places[name] = _Place(schema, (), within, alternatives)

    def check(self) -> None:
        """Raise SchemaError if there may be too many ways."""
        ways = dict.fromkeys(self._places, 1)
        users: dict[Reference, list[Reference]] = {name: [] for name in self._places}
        for name, place in self._places.items():
            for one in (*place.within, *(rule for group in place.groups for rule in group.rules)):
                users[one].append(name)
        left = list(self._places)
        while left:
            name = left.pop()
            count = _ways(self._places[name], ways)
            if count > MOST_WAYS:
                raise self._places[name].schema.error(
                    f"has alternatives that begin alike, in more than {MOST_WAYS} ways. Begin each object of anyOf "
                    "with a property of its own name or const"
                )
            if count > ways[name]:
                ways[name] = count
                self._steps.spend(self._places[name].schema)
                left += users[name]


def _ways(place: _Place, ways: dict[Reference, int]) -> int:
    counts = [place.alternatives, *(ways[one] for one in place.within)]
    for group in place.groups:
        each = [ways[rule] for rule in group.rules]
        counts.append(max(len(each), *each) if group.are_told_apart else sum(each))
    return max(counts)
