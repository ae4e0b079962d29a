"""Stars and lines below that emphasize words in markdown, told from those of products and names. Sans I/O."""

from __future__ import annotations


class Emphasis:
    """The emphasis that is open in a line."""

    def __init__(self) -> None:
        self._opened: dict[str, list[int]] = {"*": [], "_": []}

    def takes(self, char: str, size: int, before: str, after: str) -> bool:
        """Whether a run of ``size`` signs is emphasis markup, which is not spoken.

        ``before`` and ``after`` are the characters around it.
        """
        opened = self._opened[char]
        if is_blank(before) and is_blank(after):
            return size > 2
        inside = before.isalnum() and after.isalnum()  # a word, or a product
        if inside and (char == "_" or (before.isdecimal() and after.isdecimal()) or opened[-1:] != [size]):
            return False
        opens = not is_blank(after) and not before.isalnum()
        if opened and not is_blank(before) and not (opens and after.isalnum()):
            while size > 0 and opened:
                size -= opened.pop()
            return True
        if opens:
            opened.append(size)
        return opens


def is_blank(char: str) -> bool:
    return not char or char.isspace()
