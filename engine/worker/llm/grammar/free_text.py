"""The grammar of free text in which something must follow each occurrence of a marker."""

from __future__ import annotations

from engine.worker.llm.grammar.characters import Characters
from engine.worker.llm.grammar.gbnf import Alternative, Grammar, Reference, literal


def free_text(marker: str, following: Alternative, grammar: Grammar) -> Reference:
    """Return the rule of any text, in which these symbols follow each marker.

    Its states are the automaton of Knuth, Morris and Pratt for a marker that contains its first character once.
    """
    first = Characters.in_text(marker[0])
    states = [grammar.reserve() for _ in marker]
    ends = [*((one,) for one in states[1:]), (*following, states[0])]
    for state, character, then in zip(states, marker, ends, strict=True):
        expected = Characters.in_text(character)
        alternatives: list[Alternative] = [(literal(character), *then), ((~(first | expected)).gbnf, states[0]), ()]
        if expected != first:
            alternatives.append((first.gbnf, states[1]))
        grammar.define(state, alternatives)
    return states[0]
