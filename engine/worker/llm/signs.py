"""Characters, tags and entities in a model's text that are not read aloud as they are."""

from __future__ import annotations

from html import unescape
from html.entities import html5

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
    # SSML
    "amazon:effect", "audio", "break", "emphasis", "lang", "phoneme", "prosody", "say-as", "speak", "voice",
    # special tokens of chat templates
    "bos", "end_of_turn", "end_of_text", "eos", "pad", "start_of_turn", "unk",
})  # fmt: skip
"""Tags that models write. Other words in angle brackets are text."""

BREAKS = frozenset({"br", "break", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "p", "td", "th", "tr"})
"""Tags that separate words."""


def entity(name: str) -> str:
    """Return the character that an HTML entity stands for (``amp;``, ``#39;``); "" if there is no such entity."""
    numbered = name[:1] == "#" and name[-1:] == ";"
    character = unescape(f"&{name}") if name in html5 or numbered else ""
    return " " if character.isspace() else character if len(character) == 1 else ""


def is_picture(character: str, before: str) -> bool:
    """Return whether a character is an emoji or part of one; ``before`` is the preceding character."""
    code = ord(character)
    if code < 0x20E3 and character != _JOINER:
        return False
    if character == _JOINER:  # some scripts use it between letters
        return bool(before) and is_picture(before, "")
    return any(first <= code <= last for first, last in _PICTURES)
