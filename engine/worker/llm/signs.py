"""Signs that stand in a model's text and that nobody reads aloud: pictures, tags, the commands of formulas."""

from __future__ import annotations

_JOINER = "\u200d"
_PICTURES = (
    (0x2300, 0x23FF),  # clocks, hourglasses
    (0x25A0, 0x27BF),  # shapes, stars, weather, dingbats
    (0x2B00, 0x2BFF),
    (0xFE00, 0xFE0F),  # the look that the sign before is to have
    (0x20E3, 0x20E3),  # a key around a digit
    (0x1F000, 0x1FAFF),
    (0xE0020, 0xE007F),  # the letters of some flags
)

TAGS = frozenset({
    "a", "b", "big", "blockquote", "br", "center", "code", "dd", "del", "details", "div", "dl", "dt", "em", "font",
    "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "mark", "ol", "p", "pre", "q", "s",
    "small", "span", "strike", "strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead",
    "think", "thinking", "tr", "u", "ul", "var",
})  # fmt: skip
"""Tags of HTML that models write; other words in angle brackets are words."""

BREAKS = frozenset({"br", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "p", "td", "th", "tr"})
"""Those of them that stand between words."""

SILENT = frozenset({
    "begin", "end", "displaystyle", "frac", "dfrac", "tfrac", "left", "right", "big", "Big", "bigg", "Bigg", "text",
    "textbf", "textit", "mathrm", "mathbf", "mathit", "mathbb", "mathcal", "operatorname", "boxed", "quad", "qquad",
    "limits", "nolimits",
})  # fmt: skip
"""Commands of LaTeX that shape a formula and say nothing; the names of others, as ``times``, are what one says."""


def is_picture(character: str, before: str) -> bool:
    """Whether it is an emoji or a part of one; ``before`` is the character before it."""
    code = ord(character)
    if code < 0x20E3 and character != _JOINER:
        return False
    if character == _JOINER:  # other alphabets need it between letters
        return bool(before) and is_picture(before, "")
    return any(first <= code <= last for first, last in _PICTURES)
