"""Edit distance between sequences of words or phones."""

from __future__ import annotations

from collections.abc import Sequence


def edits(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the Levenshtein distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]
