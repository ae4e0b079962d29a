"""A spoken answer ends where nobody could listen to it any longer; a written one does not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from engine.chunk import Chunk, Text, Usage, VoiceText, texts
from engine.errors import StageFailed
from engine.worker.llm.spoken_answer import LATEST, MOST_SILENT, read_aloud
from engine.worker.llm.spoken_text import SLOW
from engine.worker.tts.answer_audio import LETTER_S, letters_of

SENTENCE = "Cats sleep for most of the day. "
RUN_ON = "and cats sleep "


async def written(*pieces: str) -> AsyncIterator[Text | Usage]:
    for text in texts(pieces):
        yield text
    yield Usage(output_tokens=len(pieces), finish="stop")


async def answered(*pieces: str, speaks: bool = True, longest_s: float | None = None) -> list[Chunk]:
    return [chunk async for chunk in read_aloud(written(*pieces), speaks, longest_s)]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))


def spoken(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, VoiceText))


async def test_a_row_of_emoji_ends_a_spoken_answer_behind_what_was_said() -> None:
    chunks = await answered("Sure! ", *["😀"] * 5000)
    assert text_of(chunks) == "Sure! " + "😀" * (len(text_of(chunks)) - 6)
    assert MOST_SILENT / SLOW < len(text_of(chunks)) < MOST_SILENT / SLOW + 10
    assert spoken(chunks).strip() == "Sure!"
    assert chunks[-1] == Usage(output_tokens=len(text_of(chunks)) - 5, finish="length")


@pytest.mark.parametrize("piece", ["😀", "- ", "| --- |", "\n", "…"])
async def test_an_answer_without_a_word_is_one_error(piece: str) -> None:
    with pytest.raises(StageFailed, match=r"^The answer contains nothing that can be spoken\. Ask for it in words\.$"):
        await answered(*[piece] * 5000)


async def test_a_written_answer_may_be_of_anything() -> None:
    chunks = await answered(*["😀"] * 5000, *[SENTENCE] * 100, speaks=False, longest_s=5)
    assert len(text_of(chunks)) == 5000 + 100 * len(SENTENCE)
    assert chunks[-1] == Usage(output_tokens=5100, finish="stop")


@pytest.mark.parametrize(
    "text",
    [
        "Done. 😀😀😀 What else?",
        f"See [the page](https://example.org/{'long/' * 30}) for more.",
        "Here you are:\n```python\n" + "print('hello')\n" * 80 + "```\nThat prints it.",
        "| name | age |\n|------|-----|\n" + "".join(f"| Ann | {n} |\n" for n in range(30)),
    ],
)
async def test_links_code_and_tables_between_words_do_not_end_an_answer(text: str) -> None:
    chunks = await answered(*text)
    assert text_of(chunks) == text
    assert chunks[-1] == Usage(output_tokens=len(text), finish="stop")


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
async def test_a_long_answer_ends_with_the_sentence_in_which_its_time_is_over(size: int) -> None:
    whole = SENTENCE * 200
    chunks = await answered(*(whole[at : at + size] for at in range(0, len(whole), size)), longest_s=5)
    text = text_of(chunks)
    assert text.endswith("day. ")
    assert whole.startswith(text)
    assert 5 / LETTER_S <= len(text) < 5 / LETTER_S + len(SENTENCE)
    assert spoken(chunks).split() == text.split()
    assert isinstance(chunks[-1], Usage)
    assert chunks[-1].finish == "length"


async def test_a_long_answer_without_sentences_ends_between_words() -> None:
    chunks = await answered(*[RUN_ON] * 1000, longest_s=5)
    assert text_of(chunks).endswith((" ",))
    assert 5 / LETTER_S < len(text_of(chunks)) < 1.5 * 5 / LETTER_S


@pytest.mark.parametrize(
    "text",
    ["".join(map(chr, range(0x4E00, 0x4E00 + 2000))), "".join(f"aGk{n}" for n in range(1000)), "word" * 1000],
    ids=["ideographs", "base64", "one word"],
)
async def test_a_long_answer_without_words_ends_anywhere(text: str) -> None:
    cut = text_of(await answered(*text, longest_s=5))
    letters = sum(map(letters_of, cut))
    assert text.startswith(cut)
    assert LATEST * 5 / LETTER_S <= letters < LATEST * 5 / LETTER_S + 3


async def test_ideographs_count_as_long_as_they_take_to_say() -> None:
    sentence = "猫一天里大部分时间都在睡觉。"
    cut = text_of(await answered(*[sentence] * 100, longest_s=5))
    assert cut.endswith("。")
    assert 5 / LETTER_S <= 3 * len(cut) < 5 / LETTER_S + 3 * len(sentence)


async def test_an_answer_that_ends_in_time_is_left_as_it_is() -> None:
    chunks = await answered(*[SENTENCE] * 2, longest_s=5)
    assert text_of(chunks) == SENTENCE * 2
    assert chunks[-1] == Usage(output_tokens=2, finish="stop")


@pytest.mark.parametrize(
    "loop",
    [
        "la " * 500,
        "I am a cat, and I am a dog. " * 100,
        "我喜歡貓。" * 100,
        "The cat slept. The dog barked. The bird sang. The fish swam. Nobody said a word. " * 30,
        "1. Drink water.\n" * 100,
    ],
)
async def test_an_answer_that_repeats_itself_ends_soon(loop: str) -> None:
    chunks = await answered("Well. ", *loop)
    assert chunks[-1].finish == "length"  # type: ignore[union-attr]
    assert len(text_of(chunks)) < 6 + 4 * 85


async def test_a_loop_ends_with_its_sentence() -> None:
    chunks = await answered(*["I am a cat, and I am a dog. "] * 100)
    assert text_of(chunks).rstrip().endswith("dog.")


@pytest.mark.parametrize(
    "text",
    [
        ", ".join(map(str, range(1, 301))) + ".",
        " ".join(f"{n} times 7 is {7 * n}." for n in range(1, 61)),
        "Ha ha ha ha! " * 2 + "Very, very, very funny. Row, row, row your boat. Row, row, row your boat.",
        " ".join(f"Green bottle number {n} hangs on the wall, and green bottle {n} falls." for n in range(30)),
    ],
)
async def test_lists_and_refrains_are_no_loops(text: str) -> None:
    chunks = await answered(*text.partition(" "))
    assert text_of(chunks) == text
    assert chunks[-1].finish == "stop"  # type: ignore[union-attr]


async def test_a_written_answer_may_repeat_itself() -> None:
    assert len(text_of(await answered("la " * 500, speaks=False))) == 1500


async def test_capitals_count_as_long_as_it_takes_to_spell_them() -> None:
    """Base64 in capitals was spelled for 45 seconds where 30 were the most."""
    random = [chr(ord("a") + n * n * 7 % 26) for n in range(2000)]
    plain = text_of(await answered(*random, longest_s=5))
    capital = text_of(await answered("".join(random).upper(), longest_s=5))
    assert 0.4 < len(capital) / len(plain) < 0.6


async def test_digits_count_as_long_as_it_takes_to_say_them() -> None:
    """Rows of dates and times were spoken for 102 seconds where 30 were the most."""
    dates = await answered(*["2018-04-30 15:59:56\n"] * 50, longest_s=5)
    assert len(text_of(dates)) * LETTER_S < 5
