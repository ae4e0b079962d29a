"""A formula of LaTeX within a text, as signs that a voice can say. Sans I/O."""

from __future__ import annotations

SILENT = frozenset({
    "begin", "end", "displaystyle", "frac", "dfrac", "tfrac", "left", "right", "big", "Big", "bigg", "Bigg", "text",
    "textbf", "textit", "mathrm", "mathbf", "mathit", "mathbb", "mathcal", "operatorname", "boxed", "quad", "qquad",
    "limits", "nolimits",
})  # fmt: skip
"""Commands that shape a formula and say nothing; the names of others, as ``times``, are what one says."""

_FRACTIONS = frozenset({"frac", "dfrac", "tfrac"})
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
        """Fractions of which the upper number is not complete yet."""

    def __bool__(self) -> bool:
        return bool(self.end)

    def begin(self, end: str) -> None:
        self.end = end
        self._raised = False
        self._fractions = 0

    def close(self) -> None:
        self.begin("")

    def command(self, name: str) -> str:
        """Return what a command says."""
        self._fractions += name in _FRACTIONS
        return "" if name in SILENT else _SIGNS.get(name, name)

    def mark(self, char: str, after: str, last: str) -> str | None:
        """Return what a mark of the formula says: an exponent's digits, or the stroke of a fraction. None if it is no
        mark. ``after`` is the next character, ``last`` the one that was said last."""
        if char == "^":
            self._raised = after == "{" or after in _RAISED
            return "" if self._raised else " "
        raised = self._raised
        self._raised = raised and (char == "{" or char in _RAISED)
        if char == "}" and after == "{" and self._fractions:
            self._fractions -= 1
            return "/" if last.isdecimal() else "÷"
        if char in "{}&":
            return ""
        return _RAISED[char] if self._raised else None
