"""Finite automata of regular expressions, determined and intersected.

A determined automaton gives a grammar in which each text has one derivation, so that sampling stays cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from engine.worker.llm.grammar.characters import Characters, Range
from engine.worker.llm.grammar.located import Located
from engine.worker.llm.grammar.regex import BadPattern, Choice, Node, Repeat, Sequence, parsed

MOST_STATES = 3000
"""Maximum states of one automaton."""


@dataclass(slots=True)
class Steps:
    """The steps that are left for computing automata. Each takes about a microsecond."""

    left: int = 200_000

    def spend(self, schema: Located | None = None) -> None:
        """Take one step. If none is left, raises BadPattern, or the error for a part of the schema."""
        self.left -= 1
        if self.left < 0:
            raise (
                BadPattern("is too complex")
                if schema is None
                else schema.error("the schema is too complex. Use fewer alternatives and references")
            )


class Automaton:
    """A determined automaton. State 0 is the first one. Its methods raise BadPattern if it gets too large."""

    def __init__(self, steps: Steps) -> None:
        self.moves: list[dict[int, Characters]] = []
        """For each state, the next states and the characters that lead there."""
        self.accepting = set[int]()
        self.steps = steps

    def add(self, accepting: bool) -> int:
        """Add a state and return its number."""
        if len(self.moves) == MOST_STATES:
            raise BadPattern("is too complex")
        self.moves.append({})
        if accepting:
            self.accepting.add(len(self.moves) - 1)
        return len(self.moves) - 1

    def move(self, state: int, characters: Characters, to: int) -> None:
        self.steps.spend()
        self.moves[state][to] = self.moves[state].get(to, Characters()) | characters

    def __and__(self, other: Automaton) -> Automaton:
        """Return the automaton of the texts that both accept."""
        both = Automaton(self.steps)
        pairs: list[tuple[int, int]] = []
        known: dict[tuple[int, int], int] = {}

        def state(pair: tuple[int, int]) -> int:
            if pair not in known:
                known[pair] = both.add(pair[0] in self.accepting and pair[1] in other.accepting)
                pairs.append(pair)
            return known[pair]

        state((0, 0))
        for at, (mine, theirs) in enumerate(pairs):  # grows meanwhile
            for my_next, my_characters in self.moves[mine].items():
                for their_next, their_characters in other.moves[theirs].items():
                    self.steps.spend()
                    if common := my_characters & their_characters:
                        both.move(at, common, state((my_next, their_next)))
        return both


def determined(pattern: str, steps: Steps) -> Automaton:
    """Return the automaton of the strings in which a pattern is found. Raises BadPattern."""
    graph = _Graph()
    end = graph.add_node(parsed(pattern), graph.add_state())
    classes = _Classes(characters for edges in graph.edges for characters, _ in edges)
    automaton = Automaton(steps)
    sets: list[frozenset[int]] = []
    known: dict[frozenset[int], int] = {}

    def state(states: frozenset[int]) -> int:
        if states not in known:
            known[states] = automaton.add(end in states)
            sets.append(states)
        return known[states]

    state(graph.closed({0}, steps))
    for at, states in enumerate(sets):  # grows meanwhile
        reached: dict[int, set[int]] = {}
        for characters, target in (edge for one in states for edge in graph.edges[one]):
            for number in classes.of(characters):
                steps.spend()
                reached.setdefault(number, set()).add(target)
        for number, targets in reached.items():
            automaton.move(at, classes.members[number], state(graph.closed(targets, steps)))
    return automaton


@dataclass(slots=True)
class _Graph:
    """An automaton that is not determined. Its state 0 is the first one."""

    edges: list[list[tuple[Characters, int]]] = field(default_factory=list[list[tuple[Characters, int]]])
    free: list[list[int]] = field(default_factory=list[list[int]])
    """For each state, the states that are reached without a character."""

    def add_state(self) -> int:
        if len(self.edges) == MOST_STATES:
            raise BadPattern("is too complex")
        self.edges.append([])
        self.free.append([])
        return len(self.edges) - 1

    def add_node(self, node: Node, start: int) -> int:
        """Add a part of the expression after a state, and return the state after it."""
        match node:
            case Characters():
                end = self.add_state()
                self.edges[start].append((node, end))
                return end
            case Sequence(parts):
                for part in parts:
                    start = self.add_node(part, start)
                return start
            case Choice(options):
                end = self.add_state()
                for option in options:
                    self.free[self.add_node(option, start)].append(end)
                return end
            case Repeat(part, least, most):
                return self._repeated(part, least, most, start)

    def _repeated(self, part: Node, least: int, most: int | None, start: int) -> int:
        for _ in range(least):
            start = self.add_node(part, start)
        if most is None:
            loop = self.add_state()
            self.free[start].append(loop)
            self.free[self.add_node(part, loop)].append(loop)
            return loop
        end = self.add_state()
        for _ in range(most - least):
            self.free[start].append(end)
            start = self.add_node(part, start)
        self.free[start].append(end)
        return end

    def closed(self, states: Iterable[int], steps: Steps) -> frozenset[int]:
        """Return the states with all that are reached from them without a character."""
        found = set(states)
        left = list(found)
        while left:
            for one in self.free[left.pop()]:
                steps.spend()
                if one not in found:
                    found.add(one)
                    left.append(one)
        return frozenset(found)


class _Classes:
    """The alphabet, divided into classes of characters that all sets of an expression treat alike."""

    def __init__(self, sets: Iterable[Characters]) -> None:
        distinct = dict.fromkeys(sets)
        edges = sorted({edge for one in distinct for first, last in one.ranges for edge in (first, last + 1)})
        kinds: dict[frozenset[int], list[Range]] = {}
        starts = [{first for first, _ in one.ranges} for one in distinct]
        ends = [{last + 1 for _, last in one.ranges} for one in distinct]
        within = set[int]()
        for first, following in pairwise(edges):
            within -= {n for n, one in enumerate(ends) if first in one}
            within |= {n for n, one in enumerate(starts) if first in one}
            kinds.setdefault(frozenset(within), []).append((first, following - 1))
        kinds.pop(frozenset(), None)
        self.members = [Characters.of(ranges) for ranges in kinds.values()]
        self._of = {one: [n for n, kind in enumerate(kinds) if at in kind] for at, one in enumerate(distinct)}

    def of(self, characters: Characters) -> list[int]:
        """Return the numbers of the classes that a set consists of."""
        return self._of[characters]
