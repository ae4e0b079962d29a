"""Values of ``enum`` and ``const``: rules that begin with what several of the values have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from engine.worker.llm.grammar.gbnf import Alternative, Grammar, Reference, literal


def constants_rule(values: Iterable[Any], grammar: Grammar) -> Reference:
    """Return the rule of the JSON texts of some values."""
    root = grammar.reserve()
    left = [(root, sorted({json.dumps(value, ensure_ascii=False) for value in values}))]
    while left:
        name, texts = left.pop()
        alternatives: list[Alternative] = [()] if "" in texts else []
        for _, group in groupby(filter(None, texts), key=lambda text: text[0]):
            alike = list(group)
            common = _common(alike[0], alike[-1])
            if len(alike) == 1:
                alternatives.append((literal(common),))
                continue
            rest = grammar.reserve()
            left.append((rest, [text[len(common) :] for text in alike]))
            alternatives.append((literal(common), rest))
        grammar.define(name, alternatives)
    return root


def _common(first: str, last: str) -> str:
    """Return the common beginning of two texts, and so of all between them in their order."""
    size = next((n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), None)
    return first[:size] if size is not None else min(first, last, key=len)
