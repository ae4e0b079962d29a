"""Text of servers that count in UTF-16, and so may cut a character in two between events. Sans I/O."""

from __future__ import annotations


class SurrogateJoiner:
    """Joins the two halves of a character. A half that stays alone becomes U+FFFD, since it cannot be encoded."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return the text that is known by now; a first half at its end is held back."""
        text = self._held + text
        self._held = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return _joined(text.removesuffix(self._held))

    def flush(self) -> str:
        """Return the half that was held back, as U+FFFD."""
        held = self._held
        self._held = ""
        return _joined(held)


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
