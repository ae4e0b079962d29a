"""What of a model's text is read aloud: its words, each once, in their places, and no marks."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.chunk import VoiceText
from engine.worker.llm.spoken_text import MOST_HELD, SpokenText


def said(*pieces: str) -> list[VoiceText]:
    spoken = SpokenText()
    return [one for piece in pieces for one in spoken.feed(piece)] + spoken.flush()


def aloud(*pieces: str) -> str:
    return "".join(one.text for one in said(*pieces))


def places(*pieces: str) -> list[tuple[str, int]]:
    """Each character that is said, and where it stands."""
    return [(char, one.start + i) for one in said(*pieces) for i, char in enumerate(one.text)]


@pytest.mark.parametrize(
    "text",
    [
        "Good day! How are you? 1 < 2, and 5 < 6 > 3.",
        "2 * 3 is 6, 2*3 too, and 2**10 is 1024.",
        "snake_case and __main_x stay",
        "C# and F#, #1, #hashtag, a 5* hotel",
        "It costs $5, not $6 or US$7.",
        "a[0] and f(x)[1] and x = a | b",
        "C:\\temp, ~5 minutes, -5 degrees, 1. first",
        "Dear <name>, <3",
        "When 0 <a <1, the curve falls.",
        "If i <p and q, or a <b / c and a <b, or x <u",
        "0 <a\n1 <b b b> and <a 1>, <b-2, <i",
        "Where 1 <s internationalization=2, it holds",
        "The wide world, how high, which; www",
        "1. One\n2. Two\n\nThree",
        "Straße, 20 °C, © 2024, 5 → 6, ½, 世界, नमस्ते",
        "quotes: \"a\" 'b' “c” — d – e … f",
        "hello",
        "h",
        "",
    ],
)
def test_plain_text_is_said_as_it_is(text: str) -> None:
    text = text.replace("__main_x", "main_x")
    assert aloud(text) == text


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("**Bold** and *italic* and ***both***.", "Bold and italic and both."),
        ("__Bold__ and _italic snake_case_ and ~~gone~~.", "Bold and italic snake_case and gone."),
        ('("*word*") and "**Note:** so"', '("word") and "Note: so"'),
        ("**bold *and italic***!", "bold and italic!"),
        ("**2*3** is **6**", "2*3 is 6"),
        ("# Title\n## Sub\ntext", "Title\nSub\ntext"),
        ("- one\n* two\n+ three\n  - four\n• five", "one\ntwo\nthree\nfour\nfive"),
        ("- [ ] to do\n- [x] done", " to do\n done"),
        ("* **Bold:** item", "Bold: item"),
        ("> quoted\n>> twice", "quoted\ntwice"),
        ("above\n---\nbelow\n***\nend\n===", "above\n\nbelow\n\nend\n"),
        ("Use `snake_case` and ``a ` b`` or `*args`.", "Use snake_case and a ` b or *args."),
        ("See [the docs](https://example.org/a_(b)?c=d \"The title\").", "See the docs."),
        ("See [it](u).", "See it."),
        ("[note](see the appendix)", "note(see the appendix)"),
        ("Look: ![a cat](https://example.org/cat.png)", "Look: a cat"),
        ("[![alt](a.png)](https://example.org)", "alt"),
        ("[laughs] So.[^1]", "laughs So."),
        ("At https://www.example.org/path/to?x=1#y.", "At example.org."),
        ("(see http://localhost:8080/x), or www.example.org", "(see localhost), or example.org"),
        ("<https://example.org/x> is it: https://example.org: yes", "example.org is it: example.org: yes"),
        ("**https://example.org/x**", "example.org"),
        ("[https://example.org/x](https://example.org/x)", "example.org"),
        ("One<br>two <b>bold</b> <span class=\"x\">three</span>", "One two bold three"),
        ("<p>One</p><ul><li>two</li></ul>", " One  two "),
        ("a<br/>b<br />c<BR>d</th >e", "a b c d e"),
        ("<a href='x'>it</a> <font color=red>red</font> <details open>so</details>", "it red so"),
        ('<ol reversed start="3">a</ol> <td data-col1="b">c</td>d', "a  c d"),
        ("Code:\n```python\nx = [1]\n```\nThat is it.", "Code:\n\nThat is it."),
        ("Code:\n~~~\n```\n~~~\nend", "Code:\n\nend"),
        ("1. a\n   ```sh\n   ls\n   ```\n2. b", "1. a\n\n2. b"),
        ("never closed\n```\nx = 1\n", "never closed\n"),
        ("```x = 1``` is code", "x = 1 is code"),
        ("| Name | Age |\n|:---|---:|\n| Ann | 5 |\nend", "Name , Age \n\nAnn , 5 \nend"),
        ("Hi 😀! 👩‍👩‍👧 family 🇩🇪 ✅ ok 1️⃣ one ❤️", "Hi !  family   ok 1 one "),
        ("\\*stars\\* and \\_lines\\_", "*stars* and _lines_"),
        ("\\(x_1 \\times y\\) is $a^2$ and $$\\frac{a}{b}$$.", "x 1 times y is a² and a÷b."),
        ("\\[\n\\text{mass} = 5\n\\]\n*so*", "\nmass = 5\n\nso"),
        ("</think>\nyes", "\nyes"),
    ],
)  # fmt: skip
def test_marks_are_not_said(text: str, spoken: str) -> None:
    assert aloud(text) == spoken


MARKS = """* ** _ __ ~~ ` ``` ~~~ [ ] ( ) ![ ]( < > <b> </b> <br> <a a= <https:// https:// http www. # - + | |-| $ $$
\\ \\( \\] { } ^ a b1 2 word _x . , : ! / = 😀 é •"""
MARKDOWN = st.lists(st.sampled_from([*MARKS.split(), " ", "\n", "  ", "\n\n", "\t"]), max_size=25).map("".join)


@example("- a [x] b", [4])
@given(MARKDOWN, st.lists(st.integers(0, 60), max_size=6))
def test_how_the_answer_is_cut_makes_no_difference(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    assert places(*pieces) == places(text) == places(*text)


REPLACED = {
    ("|", ","), ("^", " "), ("_", " "), ("<", " "), ("}", "/"), ("}", "÷"),
    *zip("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", strict=True),
}  # fmt: skip


@given(MARKDOWN)
def test_what_is_said_stands_in_the_answer_where_it_is_told_to_stand(text: str) -> None:
    found = places(text)
    assert [at for _, at in found] == sorted({at for _, at in found})
    assert all(text[at] == char or (text[at], char) in REPLACED or text[at] in "&\\" for char, at in found)


@given(MARKDOWN.filter(lambda text: not re.search(r"```|~~~|http|www|<|\]\(|\\|\$", text)))
def test_no_word_is_lost_or_doubled(text: str) -> None:
    """Outside of what is left out whole, every letter and digit is said once."""
    words = [(char, at) for at, char in enumerate(text) if char.isalnum()]
    assert [one for one in places(text) if one[0].isalnum()] == words


@example("[a](" + "b" * 30 + " c)")
@given(MARKDOWN.filter(lambda text: not re.search(r"```|~~~", text)))
def test_no_more_than_some_characters_wait_for_what_follows(text: str) -> None:
    spoken = SpokenText()
    told: dict[int, int] = {}
    for fed, char in enumerate(text, start=1):
        told |= {one.start + i: fed for one in spoken.feed(char) for i in range(len(one.text))}
    told |= {one.start + i: len(text) for one in spoken.flush() for i in range(len(one.text))}
    for fed in range(1, len(text) + 1):
        assert sum(at < fed < then for at, then in told.items()) <= MOST_HELD + 2


def test_words_are_said_as_they_come() -> None:
    spoken = SpokenText()
    assert spoken.feed("Good ") == [VoiceText("Good ", 0)]
    assert spoken.feed("**day") == [VoiceText("day", 7)]
    assert spoken.feed("** to") == [VoiceText(" to", 12)]
    assert spoken.flush() == []


def test_a_long_line_of_marks_is_not_gathered() -> None:
    spoken = SpokenText()
    for _ in range(1000):
        assert spoken.feed("-" * 100) == []
    assert spoken.feed("x") == [VoiceText("-" * MOST_HELD + "x", 100_000 - MOST_HELD)]
