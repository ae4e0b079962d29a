"""A formula of LaTeX within a text, as signs that a voice can say. Sans I/O."""

from __future__ import annotations

SILENT = frozenset({
    "begin", "end", "displaystyle", "frac", "dfrac", "tfrac", "left", "right", "big", "Big", "bigg", "Bigg", "text",
    "textbf", "textit", "mathrm", "mathbf", "mathit", "mathbb", "mathcal", "operatorname", "boxed", "quad", "qquad",
    "limits", "nolimits",
})  # fmt: skip
"""Commands that shape a formula and say nothing; the names of others, as ``times``, are what one says."""

FRACTIONS = frozenset({"frac", "dfrac", "tfrac"})
_SIGNS = {
    "sqrt": "√", "cdot": "·", "pm": "±", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠",
    "approx": "≈", "infty": "∞", "div": "÷", "to": "→", "degree": "°", "circ": "°",
}  # fmt: skip
_RAISED = dict(zip("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", strict=True))


class Formula:
    """The formula that is being read, if there is one."""

    def __init__(self) -> None:
        self.end = ""
        """The sign that ends it; empty outside of a formula."""
        self._raised = False
        self._fractions = 0
        """Fractions whose numerator is not complete yet."""
        self._digits = False
        """Whether the numerator that is being read has only digits so far."""

    def __bool__(self) -> bool:
        return bool(self.end)

    def begin(self, end: str) -> None:
        self.end = end
        self._raised = False
        self._fractions = 0

    def close(self) -> None:
        self.begin("")

    def command(self, name: str, mixed: bool = False) -> str:
        """Return what a command says. ``mixed`` is true for the fraction of a mixed number: 1 and 1/4."""
        if name in FRACTIONS:
            self._fractions += 1
            self._digits = True
            return " and " if mixed else ""
        return "" if name in SILENT else _SIGNS.get(name, name)

    def mark(self, char: str, after: str) -> str | None:
        """Return what a mark of the formula says: an exponent's digits, or the stroke of a fraction. None if it is no
        mark. ``after`` is the next character."""
        if char == "^":
            self._raised = after == "{" or after in _RAISED
            return "" if self._raised else " "
        raised = self._raised
        self._raised = raised and (char == "{" or char in _RAISED)
        if char == "}" and after == "{" and self._fractions:
            self._fractions -= 1
            return "/" if self._digits else "÷"
        if char in "{}&":
            return ""
        self._digits = self._digits and char.isdecimal()
        return _RAISED[char] if self._raised else None
