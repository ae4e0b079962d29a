"""The front end: what is said for what is written, and that cutting the text never changes it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.english.speller import NOTHING, Said, Speller

SPOKEN = {
    "Hello there!": "hello there.",
    "It's 3:30, not 9:05 pm.": "it's three thirty, not nine oh five pee em.",
    "Meet at 10am or 3:00.": "meet at ten ay em or three o'clock.",
    "Today is Saturday, March 14th.": "today is saturday, march fourteenth.",
    "On March 14, 2024, and in 1984 and 2005": (
        "on march fourteenth, twenty twenty four, and in nineteen eighty four and two thousand and five."
    ),
    "2024-03-14": "march fourteenth, twenty twenty four.",
    "3/14/2024": "march fourteenth, twenty twenty four.",
    "the 1990s": "the nineteen nineties.",
    "It costs $3.50.": "it costs three dollars and fifty cents.",
    "$1, $40 million, €5": "one dollar, forty million dollars, five euros.",
    "5% of 1,234.5": "five percent of one thousand two hundred and thirty four point five.",
    "72°F and 5 km, 1 kg, 20km/h": (
        "seventy two degrees fahrenheit and five kilometers, one kilogram, twenty kilometers per hour."
    ),
    "-5 degrees": "minus five degrees.",
    "3 + 4 = 7": "three plus four equals seven.",
    "10 / 2": "ten divided by two.",
    "1/2 cup, 3/4": "one half cup, three quarters.",
    "½ cup, 2½ cups, ⅔ of ⅛": "one half cup, two and one half cups, two thirds of one eighth.",
    "1⁄2, 10½%": "one half, ten and one half percent.",
    "10² and x³, 5 m²": "ten squared and ex cubed, five meters squared.",
    "10⁻⁶ to 2¹⁰.": "ten to the power of minus six to two to the power of ten.",
    "As others found¹²": "as others found.",
    'As "others²": found': "as others, found.",
    "9.8 m/s² in a 50m² flat": "nine point eight meters per second squared in a fifty meters squared flat.",
    "E=mc², x²y and ½cup": "ee equals em see squared, ex squared why and one half cup.",
    "2³²-1, H⁺ and Cl⁻": "two to the power of thirty two minus one, aitch plus and see ell minus.",
    "10-20 people": "ten to twenty people.",
    "1st 2nd 21st": "first second twenty first.",
    "call 555-1234": "call five five five, one two three four.",
    "agent 007": "agent zero zero seven.",
    "Dr. Smith and Mr. Jones, e.g. here": "doctor smith and mister jones, for example, here.",
    "NASA, the USA and an API": "nasa, the you ess ay and an ay pee eye.",
    "GPT-4 and MP3s": "gee pee tee four and em pee three ess.",
    "b, a, n, a, n, a": "bee, ay, en, ay, en, ay.",
    "A b c. I am a dog.": "ay bee see. i am a dog.",
    "see https://www.example.org/help?x=1": "see example dot org slash help.",
    "me@example.com": "me at example dot com.",
    "**Bold** — `code`": "bold, code.",
    "- one\n- two": "one, two.",
    "café naïve Straße": "cafe naive strasse.",
    "Hi 你好 😀 there": "hi something in chinese there.",
    "Привет как дела?": "something in cyrillic?",
    "The word λόγος means word.": "the word something in greek means word.",
    "Καλημέρα κόσμε! Hello.": "something in greek. hello.",
    "안녕 おはよう नमस्ते": "something in korean something in japanese something in hindi.",
    "ａｂｃｄ": "abcd.",
    "👍": "",
    "": "",
    "...": "",
    "Really?!": "really?",
    'She said: "yes."': "she said, yes.",
    "don’t": "don't.",
}


def say(*pieces: str) -> Said:
    speller = Speller()
    said = NOTHING
    for piece in pieces:
        said += speller.feed(piece)
    return said + speller.flush()


@pytest.mark.parametrize(("written", "spoken"), SPOKEN.items())
def test_what_is_said(written: str, spoken: str) -> None:
    assert say(written).letters == spoken


def test_thirty_digits_are_read_one_by_one() -> None:
    said = say("123456789012345678901234567890").letters
    assert said.replace(",", "").rstrip(".").split()[:4] == ["one", "two", "three", "four"]
    assert len(said.split()) == 30


def test_a_word_is_said_when_the_blank_after_it_arrives() -> None:
    speller = Speller()
    assert speller.feed("Hello wor").letters == "hello"
    assert speller.feed("ld ").letters == " world"
    assert speller.feed("$3 ").letters == ""
    assert speller.feed("million ").letters == " three million dollars"


def test_letters_know_where_they_came_from() -> None:
    written = "I paid $5, ok?"
    said = say(written)
    assert said.letters == "i paid five dollars, okay?"
    five = said.letters.index("five")
    assert written[said.sources[five]] == "$"
    assert written[said.sources[said.letters.index("okay")]] == "o"


SIGNS = "aAbI19 .,:;!?$€%/-'\"()\n@#*_&+=°"
WRITTEN = st.text(
    st.one_of(st.sampled_from(SIGNS), st.characters(exclude_categories=["Cs"])),
    max_size=80,
) | st.lists(st.sampled_from([*SPOKEN, "$3", "million", "I", "a", "x", "\n", "pm", "May"]), max_size=6).map(" ".join)


def cut(text: str, places: list[int]) -> list[str]:
    at = sorted(min(place, len(text)) for place in places)
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


@settings(deadline=None)
@given(WRITTEN, st.lists(st.integers(0, 80), max_size=8))
@example("$3 million", [1, 2, 3])
def test_cutting_changes_nothing(text: str, places: list[int]) -> None:
    assert say(*cut(text, places)) == say(text)


@settings(deadline=None)
@given(WRITTEN)
@example("١٢ ½ ² Ⅳ x² 5²")
@example("A➒b ➐mt ⓸")  # digits to Unicode, but no decimals
def test_only_letters_and_pauses_in_order(text: str) -> None:
    said = say(text)
    assert re.fullmatch(r"(?:[a-z']+[,.?]?(?: |$))*", said.letters), said.letters
    assert len(said.letters) == len(said.sources)
    assert list(said.sources) == sorted(said.sources)
    assert all(0 <= source < len(text) for source in said.sources)


@settings(deadline=None)
@given(WRITTEN)
def test_nothing_but_money_is_held_back_after_a_blank(text: str) -> None:
    """Two blanks later all of it is out, but for a closing full stop."""
    speller = Speller()
    early = speller.feed(text + " x ").letters
    assert say(text + " x ").letters.removesuffix(".") == early.removesuffix(".")


def test_control_a_speller_that_forgets_between_pieces_is_caught() -> None:
    """The property above is able to fail: speaking every piece on its own is not the same."""
    text, pieces = "It is 3:30 pm", ["It is 3:", "30 pm"]
    assert "".join(say(piece).letters for piece in pieces) != say(text).letters


@pytest.mark.parametrize(
    ("first", "checked"), [("from engine.english.numbers import grammar; grammar()", False), ("import inflect", True)]
)
def test_the_rules_for_numbers_are_imported_without_being_rewritten(first: str, checked: bool) -> None:
    """typeguard's checks in each of inflect's methods took two seconds of every start; others' are left alone."""
    code = (
        f"{first}\n"
        "import inflect, typeguard\n"
        "names = inflect.engine.number_to_words.__code__.co_names\n"
        "print('typeguard' in names, typeguard.typechecked.__name__)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == f"{checked} typechecked\n"
