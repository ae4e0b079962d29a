"""Characters, tags and LaTeX commands in a model's text that are not read aloud."""

from __future__ import annotations

_JOINER = "\u200d"
_PICTURES = (
    (0x2300, 0x23FF),  # clocks, hourglasses
    (0x25A0, 0x27BF),  # shapes, stars, weather, dingbats
    (0x2B00, 0x2BFF),
    (0xFE00, 0xFE0F),  # variation selectors
    (0x20E3, 0x20E3),  # combining keycap
    (0x1F000, 0x1FAFF),
    (0xE0020, 0xE007F),  # tag characters of some flags
)

TAGS = frozenset({
    "a", "b", "big", "blockquote", "br", "center", "code", "dd", "del", "details", "div", "dl", "dt", "em", "font",
    "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "mark", "ol", "p", "pre", "q", "s",
    "small", "span", "strike", "strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead",
    "think", "thinking", "tr", "u", "ul", "var",
})  # fmt: skip
"""HTML tags that models write. Other words in angle brackets are text."""

BREAKS = frozenset({"br", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "p", "td", "th", "tr"})
"""Tags that separate words."""

SILENT = frozenset({
    "begin", "end", "displaystyle", "frac", "dfrac", "tfrac", "left", "right", "big", "Big", "bigg", "Bigg", "text",
    "textbf", "textit", "mathrm", "mathbf", "mathit", "mathbb", "mathcal", "operatorname", "boxed", "quad", "qquad",
    "limits", "nolimits",
})  # fmt: skip
"""LaTeX commands that only affect layout. The names of others, such as ``times``, are read aloud."""


def is_picture(character: str, before: str) -> bool:
    """Return whether a character is an emoji or part of one; ``before`` is the preceding character."""
    code = ord(character)
    if code < 0x20E3 and character != _JOINER:
        return False
    if character == _JOINER:  # some scripts use it between letters
        return bool(before) and is_picture(before, "")
    return any(first <= code <= last for first, last in _PICTURES)
