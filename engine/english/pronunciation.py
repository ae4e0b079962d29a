"""Converts English words to phonemes: by a lexicon, as a form of a word in the lexicon, or by letter-to-sound rules.

The phonemes are Kokoro's, which the dictionaries of misaki use (Apache-2.0): American English, diphthongs as one
capital letter. ``ipa`` converts them to espeak-ng's notation, for voices that were trained on its output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from engine.english.letter_sounds import letters_to_sounds
from engine.english.lexicon import LETTER_NAMES

_WEAK = {"a": "ə", "an": "ən", "i": "ˌI", "and": "ænd"}
_NAMES_OF_LETTERS = {"ay": "ˈA", "cue": "kjˈu", "miz": "mˈɪz", "em": "ˈɛm", "ell": "ˈɛl", "dee": "dˈi", "pee": "pˈi"}
_VOWELS = "AIOQWYaeiouæɐɑɒəɛɜɪʊʌɔᵊᵻ"
_UNVOICED = "ptkfθ"
_HISSING = "szʃʒʧʤ"
_PAUSES = ",.?!"
_IPA = {
    "ɜɹ": "ɜː", "əɹ": "ɚ", "ᵊl": "əl", "ᵊ": "ə", "A": "eɪ", "I": "aɪ", "O": "oʊ", "W": "aʊ", "Y": "ɔɪ", "ʤ": "dʒ",
    "ʧ": "tʃ", "i": "iː", "u": "uː", "ɑɹ": "ɑːɹ", "ɑ": "ɑː", "ɔɹ": "oːɹ", "ɔ": "ɔː",
}  # fmt: skip
_IPA_PARTS = re.compile("|".join(sorted(map(re.escape, _IPA), key=len, reverse=True)))


class Pronunciation:
    """Converts clauses of spoken words (see ``engine.english.clause.in_words``) to phonemes.

    Every word gets phonemes, also one that is not in the lexicon.

    Args:
        lexicon: The phonemes of words in lowercase letters.
        spell: Converts Kokoro's phonemes to the lexicon's notation, such as ``ipa``.
    """

    def __init__(self, lexicon: Mapping[str, str], spell: Callable[[str], str] = str) -> None:
        self._lexicon = lexicon
        self._spell = spell
        self._word = lru_cache(4096)(self._word_of)

    def phonemes(self, clause: str) -> str:
        """Return a clause's phonemes: the words separated by spaces, and the pauses , . ? ! unchanged."""
        words = re.findall(rf"[a-z']+|[{_PAUSES}]", clause.lower())
        said: list[str] = []
        following = ""
        for word in reversed(words):
            following = word if word in _PAUSES else self._in_context(word, following)
            if following:
                said.append(following if word in _PAUSES else f" {following}")
        return "".join(reversed(said)).strip()

    def _in_context(self, word: str, following: str) -> str:
        """Return a word's phonemes. ``following`` are the next word's phonemes."""
        vowel = following.lstrip("ˈˌ")[:1] in _VOWELS if following else False
        if word == "the":
            return self._spell("ði" if vowel else "ðə")
        if word == "to" and following and following not in _PAUSES:
            return self._spell("tʊ" if vowel else "tə")
        return self._word(word)

    def _word_of(self, word: str) -> str:
        bare = word.strip("'")
        if special := _WEAK.get(bare) or _NAMES_OF_LETTERS.get(bare):
            return self._spell(special)
        return self._known(word) or self._known(bare) or self._made(bare)

    def _known(self, word: str) -> str:
        return self._lexicon.get(word, "") or self._form(word)

    def _form(self, word: str) -> str:
        """Return the phonemes of a regular form (such as a plural) of a lexicon word; "" for other words."""
        for ending, stems, make in _FORMS:
            if not word.endswith(ending):
                continue
            root = word[: -len(ending)]
            doubled = len(root) > 3 and root[-1] == root[-2] and ending in ("ed", "ing", "er")  # "stopped"
            for stem in (*(root + tail for tail in stems), *([root[:-1]] if doubled else [])):
                if len(stem) > 1 and (known := self._lexicon.get(stem)):
                    return make(known)
        return ""

    def _made(self, word: str) -> str:
        """Return the phonemes of an unknown word: those of two known words that form it, or by rules."""
        plain = word.replace("'", "")
        for at in range(len(plain) - 3, 2, -1):
            first, second = self._lexicon.get(plain[:at]), self._known(plain[at:])
            if first and second:
                return first + second.replace("ˈ", "ˌ")
        if word.endswith("'s"):
            return _plural(self._spell(letters_to_sounds(word[:-2])))
        return self._spell(letters_to_sounds(plain)) or self.phonemes(" ".join(LETTER_NAMES[one] for one in plain))


def ipa(phonemes: str) -> str:
    """Return Kokoro's phonemes in the notation of espeak-ng's American English."""
    return _IPA_PARTS.sub(lambda match: _IPA[match[0]], phonemes)


def _plural(phonemes: str) -> str:
    last = phonemes[-1:]
    return phonemes + ("s" if last in _UNVOICED else "ᵻz" if last in _HISSING else "z")


def _past(phonemes: str) -> str:
    last = phonemes[-1:]
    return phonemes + ("ᵻd" if last in "td" else "t" if last in _UNVOICED or last in "sʃʧ" else "d")


def _add(ending: str) -> Callable[[str], str]:
    return lambda phonemes: phonemes + ending


_FORMS = (
    ("'s", ("",), _plural),
    ("s'", ("",), _plural),
    ("'ll", ("",), _add("əl")),
    ("'ve", ("",), _add("əv")),
    ("'re", ("",), _add("əɹ")),
    ("'d", ("",), _past),
    ("n't", ("",), _add("ənt")),
    ("ies", ("y",), _plural),
    ("ied", ("y",), _past),
    ("es", ("", "e"), _plural),
    ("s", ("",), _plural),
    ("ed", ("", "e"), _past),
    ("ing", ("", "e"), _add("ɪŋ")),
    ("er", ("", "e"), _add("əɹ")),
    ("ly", ("",), _add("li")),
    ("ness", ("",), _add("nəs")),
    ("less", ("",), _add("ləs")),
    ("ful", ("",), _add("fəl")),
)
"""Regular endings: the ending, the endings of the base word, and a function that changes the base word's phonemes."""
