"""Aligns letters with phones by hard EM; every letter speaks 0, 1 or 2 phones.

The teacher reports the end time of each phone, which gives the end times of letters. The alphabet is the talker's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

LETTERS = "^ abcdefghijklmnopqrstuvwxyz',.?"  # ^ starts an utterance
PHONES = [
    "pau",
    "aa",
    "ae",
    "ah",
    "ao",
    "aw",
    "ay",
    "b",
    "ch",
    "d",
    "dh",
    "eh",
    "er",
    "ey",
    "f",
    "g",
    "hh",
    "ih",
    "iy",
    "jh",
    "k",
    "l",
    "m",
    "n",
    "ng",
    "ow",
    "oy",
    "p",
    "r",
    "s",
    "sh",
    "t",
    "th",
    "uh",
    "uw",
    "v",
    "w",
    "y",
    "z",
    "zh",
]
LETTER_INDEX = {letter: index for index, letter in enumerate(LETTERS)}
PHONE_INDEX = {phone: index for index, phone in enumerate(PHONES)} | {"ax": PHONES.index("ah")}
PAUSES = {letter: LETTER_INDEX[letter] for letter in "^ ,.?"}
NEVER = -1e9
MAX_PHONES = 2


def letters(text: str) -> list[int]:
    """Return the indices of the start sign and of a text's characters; characters outside of LETTERS are an error."""
    return [LETTER_INDEX[letter] for letter in "^" + text]


class Aligner:
    """Log probabilities: emission[letter, phone] and count[letter, number of phones]."""

    def __init__(self) -> None:
        self.emission = _first_guess()
        self.count = np.tile(np.log([0.2, 0.7, 0.1]), (len(LETTERS), 1))
        self._fix_pauses()

    def fit(self, words: Sequence[tuple[Sequence[int], Sequence[int]]], rounds: int = 5) -> None:
        """Run hard EM on (letters, phones) of single words."""
        for _ in range(rounds):
            emission, count = np.full(self.emission.shape, 0.02), np.full(self.count.shape, 0.5)
            for letter_ids, phone_ids in words:
                path = self.align(letter_ids, phone_ids)
                for letter, spoken in zip(letter_ids, path or (), strict=False):
                    count[letter, len(spoken)] += 1
                    for phone in spoken:
                        emission[letter, phone] += 1
            self.emission = np.log(emission / emission.sum(1, keepdims=True))
            self.count = np.log(count / count.sum(1, keepdims=True))
            self._fix_pauses()

    def align(self, letter_ids: Sequence[int], phone_ids: Sequence[int]) -> list[tuple[int, ...]] | None:
        """Return the phones of each letter on the best path, or None if there is none or it is too unlikely."""
        score, choices = self._forward(letter_ids, phone_ids)
        if score < -3.2 * len(letter_ids) - 5:
            return None
        path, end = list[tuple[int, ...]](), len(phone_ids)
        for choice in reversed(choices):
            spoken = int(choice[end])
            path.append(tuple(phone_ids[end - spoken : end]))
            end -= spoken
        return path[::-1]

    def _forward(self, letter_ids: Sequence[int], phone_ids: Sequence[int]) -> tuple[float, list[np.ndarray]]:
        best = np.full(len(phone_ids) + 1, NEVER)
        best[0] = 0
        phones = np.asarray(phone_ids, int)
        choices = []
        for letter in letter_ids:
            emitted = self.emission[letter, phones]
            options = np.full((MAX_PHONES + 1, len(best)), NEVER)
            options[0] = best + self.count[letter, 0]
            options[1, 1:] = best[:-1] + emitted + self.count[letter, 1]
            options[2, 2:] = best[:-2] + emitted[:-1] + emitted[1:] + self.count[letter, 2]
            choice = options.argmax(0)
            choices.append(choice)
            best = options[choice, np.arange(len(best))]
        return float(best[-1]), choices

    def _fix_pauses(self) -> None:
        """Let only spaces and punctuation speak pauses, and nothing else."""
        self.emission[:, 0] = -14
        for sign, index in PAUSES.items():
            self.emission[index] = -14
            self.emission[index, 0] = -0.01
            silent, paused = {" ": (-0.05, -3), ",": (-5, -0.3)}.get(sign, (-5, -0.01))
            self.count[index] = silent, paused, -14


def _first_guess() -> np.ndarray:
    """Initialize: a letter prefers the phones written with it, and vowels prefer vowels."""
    similar = {
        tuple(pair.split(":"))
        for pair in [
            "c:k",
            "c:s",
            "x:k",
            "x:s",
            "q:k",
            "i:ay",
            "y:iy",
            "u:ah",
            "j:jh",
            "g:jh",
            "o:ow",
            "s:z",
            "p:f",
            "h:sh",
            "h:th",
        ]
    }
    guess = np.full((len(LETTERS), len(PHONES)), -6.0)
    for row, letter in enumerate(LETTERS):
        for column, phone in enumerate(PHONES):
            if phone[0] == letter or (letter, phone) in similar:
                guess[row, column] = -1.5
            elif phone[0] in "aeiou" and letter in "aeiouy":
                guess[row, column] = -3
    return guess


def letter_ends(path: Iterable[tuple[int, ...]], phone_ends_s: Sequence[float]) -> list[float]:
    """Return the end time of each letter in seconds; a letter without phones ends with the previous one."""
    ends, spoken, end = list[float](), 0, 0.0
    for phones in path:
        spoken += len(phones)
        end = phone_ends_s[spoken - 1] if phones else end
        ends.append(end)
    return ends
