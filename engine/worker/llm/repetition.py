"""Detection of a text that repeats the same words without end, while it is written."""

from __future__ import annotations

from collections import deque

from engine.worker.tts.text_breaks import is_ideograph

LONGEST = 60
"""Words of the longest repeated passage that is detected."""
LEAST = 24
"""Words of the shortest text that counts as a loop. Three repetitions are needed in any case."""
_WORD_CHARS = 32


class Repetition:
    """Reads a text character by character. An ideograph counts as a word; case and punctuation make no difference."""

    def __init__(self) -> None:
        self.found = False
        """Whether the text has ended with the same words three times in a row, and with LEAST words of such a loop."""
        self._word = ""
        self._words = deque[str](maxlen=LONGEST)
        self._equal = [0] * (LONGEST + 1)
        """For each distance, the number of last words that equal the word at that distance before them."""

    def push(self, character: str) -> None:
        if character.isalnum():
            self._word = (self._word + character.casefold())[:_WORD_CHARS]
        if self._word and (is_ideograph(character) or not character.isalnum()):
            self._end_word()

    def _end_word(self) -> None:
        word = self._word
        self._word = ""
        for distance in range(1, len(self._words) + 1):
            run = self._equal[distance] + 1 if self._words[-distance] == word else 0
            self._equal[distance] = run
            self.found = self.found or run >= max(2 * distance, LEAST - distance)
        self._words.append(word)
