"""Every English word has phonemes, also one that no lexicon has."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.english.letter_sounds import letters_to_sounds
from engine.english.pronunciation import Pronunciation, ipa

KOKORO = set("AIOQSTWYabcdefhijklmnopqrstuvwxyzɑɐɒæɔəɛɜɡɪŋɹɾʃʊʌʒʤʧˈˌᵊᵻθð ,.?!")
"""The phonemes of Kokoro's vocabulary that English needs."""
LEXICON = {
    "minute": "mˈɪnət", "open": "ˈOpᵊn", "that": "ðæt", "stop": "stˈɑp", "city": "sˈɪɾi", "use": "jˈuz",
    "box": "bˈɑks", "they": "ðA", "apple": "ˈæpᵊl", "hour": "ˈWəɹ", "do": "dˈu", "tooth": "tˈuθ", "brush": "bɹˈʌʃ",
}  # fmt: skip


@pytest.fixture
def spoken() -> Pronunciation:
    return Pronunciation(LEXICON)


@pytest.mark.parametrize(
    ("word", "phonemes"),
    [
        ("minutes", "mˈɪnəts"),
        ("opened", "ˈOpᵊnd"),
        ("opening", "ˈOpᵊnɪŋ"),
        ("that's", "ðæts"),
        ("stopped", "stˈɑpt"),
        ("cities", "sˈɪɾiz"),
        ("using", "jˈuzɪŋ"),
        ("boxes", "bˈɑksᵻz"),
        ("they'll", "ðAəl"),
        ("apple's", "ˈæpᵊlz"),
        ("toothbrush", "tˈuθbɹˌʌʃ"),
    ],
)
def test_forms_and_compounds_of_known_words_are_made_of_them(spoken: Pronunciation, word: str, phonemes: str) -> None:
    assert spoken.phonemes(word) == phonemes


@pytest.mark.parametrize(
    ("word", "phonemes"),
    [
        ("kowalski", "kˈWɑlski"), ("nowak", "nˈWɑk"), ("parley", "pˈɑɹli"), ("zelensky", "zˈɛlɛnski"),
        ("elara", "ˈɛlɑɹə"), ("gaming", "ɡˈAmɪŋ"), ("phone", "fˈOn"), ("knight", "nˈIt"), ("nation", "nˈAʃᵊn"),
    ],
)  # fmt: skip
def test_unknown_words_are_read_by_their_letters(word: str, phonemes: str) -> None:
    assert letters_to_sounds(word) == phonemes


def test_articles_and_to_depend_on_the_next_word(spoken: Pronunciation) -> None:
    assert spoken.phonemes("the apple, the city.") == "ði ˈæpᵊl, ðə sˈɪɾi."
    assert spoken.phonemes("to open to do") == "tʊ ˈOpᵊn tə dˈu"


def test_pauses_stay_where_they_are(spoken: Pronunciation) -> None:
    assert spoken.phonemes("stop, that box! an hour? they do.") == "stˈɑp, ðæt bˈɑks! ən ˈWəɹ? ðA dˈu."
    assert spoken.phonemes("") == spoken.phonemes(" ") == ""


@given(st.text(string.ascii_lowercase + "'", min_size=1, max_size=20).filter(lambda word: word.strip("'")))
def test_no_word_is_dropped_and_all_phonemes_are_known(word: str) -> None:
    phonemes = Pronunciation({}).phonemes(word)
    assert phonemes.strip("ˈˌ ")
    assert set(phonemes) <= KOKORO


def test_ipa_is_espeaks() -> None:
    assert ipa("ʧˈAnʤ ðə wˈɜɹd") == "tʃˈeɪndʒ ðə wˈɜːd"
    assert ipa("ˈOpᵊnəɹ mˈIn nˈW tˈYz") == "ˈoʊpənɚ mˈaɪn nˈaʊ tˈɔɪz"
