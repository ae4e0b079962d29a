"""Clauses of an answer: its text again, whole and once, cut where one may, and the first one early."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.chunk import Chunk, Text, Usage, VoiceText, texts
from engine.deployment.config import ChunkSpec
from engine.stream import of
from engine.worker.stage_request import StageRequest
from engine.worker.tts.clauses import AT_ONCE, LONGEST, WORD_LETTERS, WORDS, Clause, Clauses, ResumePoint, clauses
from tests.engine.fakes import request

PIECES = (
    "3.14", "1,000", "10:30", "v2.0", "2026-11-23", "$3 million", "50 %", "+49 30 1234", "Dr. Smith",
    "Mr. and Mrs. Jones",
    "e.g.", "i.e. never", "U.S. Army", "J. R. R. Tolkien", "No. 5", "Fig. 2", "p.m.", "etc.", "z. B.", "am 3. Oktober",
    "https://example.com/a,b;c?d=e:f#g.", "me.and+you@example.co.uk", "“Really?” he asked.", '"No," she said. "Never!"',
    "(in brackets)", "it's", "well-known", "word—word", "a – b", "...", "…", "?!", "!", "?", ".", ",", ";", ":",
    " ", "  ", "\n", "\n\n", "\t", "- item\n", "1. first\n", "2) second\n", "a) third\n", "* star", "word", "another",
    "I.", "ok.",
    "😀", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪🇫🇷", "1️⃣", "今天天气很好", "，", "。", "！", "？」", "「你好", "カーテンを",
    "日本語 and English", "サッカー",
    "안녕하세요.", "สวัสดีครับ", "مرحبا، كيف", "é", "e\u0301", "नमस्ते।",
    "Straße", "\u200d", "\u200b", "x" * 90, "9" * 60, "`code`",
)  # fmt: skip


def cut(pieces: Sequence[str], words: ChunkSpec = WORDS) -> list[Clause]:
    """The clauses of a text that comes in pieces."""
    cutter, found = Clauses(words), list[Clause]()
    for piece in texts(pieces):
        found += cutter.feed(piece.text, piece.start)
    last = cutter.flush()
    return found + ([last] if last else [])


def said(text: str) -> list[str]:
    return [clause.text for clause in cut([text])]


def in_pieces(text: str, ends: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(end % (len(text) + 1) for end in ends)})
    return [text[a:b] for a, b in itertools.pairwise(places)]


def check(text: str, pieces: Sequence[str]) -> None:
    found = cut(pieces)
    assert "".join(clause.text for clause in found) == text, "nothing is lost, nothing comes twice"
    assert [source for clause in found for source in clause.sources] == list(range(len(text))), "offsets are exact"
    assert found == cut([text]), "however the text is cut makes no difference"
    for clause in found:
        assert 0 < len(clause.text) <= 2 * LONGEST * WORD_LETTERS
        words = clause.words()
        assert all(0 <= share <= 1 for share, _ in words)
        assert words == sorted(words)
        assert (words[-1][0], words[-1][1]) == (1.0, clause.end) or not clause.text.strip()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES) | st.text(max_size=12), max_size=40), st.lists(st.integers(0, 4000), max_size=30)
)
def test_clauses_are_the_text_again_however_it_comes(pieces: list[str], ends: list[int]) -> None:
    text = "".join(pieces)
    check(text, in_pieces(text, ends))


def generated(seed: int) -> tuple[str, list[int]]:
    drawn = random.Random(seed)
    text = "".join(drawn.choice(PIECES) + drawn.choice(("", " ", " ")) for _ in range(drawn.randrange(30)))
    return text, [drawn.randrange(4000) for _ in range(drawn.randrange(40))]


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.soak)])
def test_random_texts_are_cut_without_loss(count: int) -> None:
    for seed in range(count):
        text, ends = generated(seed)
        check(text, in_pieces(text, ends))


def test_the_check_itself_sees_a_lost_and_a_doubled_character(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "One two three, four five six seven. Eight nine ten."
    whole = Clauses.feed
    for harm in (lambda text: text[1:], lambda text: text[:1] + text):

        def harmed(self: Clauses, text: str, start: int, harm=harm) -> Iterator[Clause]:
            for clause in whole(self, text, start):
                yield Clause(harm(clause.text), clause.sources)

        monkeypatch.setattr(Clauses, "feed", harmed)
        with pytest.raises(AssertionError, match="nothing is lost"):
            check(text, [text])


@pytest.mark.parametrize(
    "whole",
    [
        "3.14", "1,000", "10:30", "v2.0", "12.5 km", "$3 million", "Dr. Smith", "Mrs. Jones", "J. Smith", "U.S.",
        "e.g.", "i.e. this", "No. 5", "Fig. 2", "p.m.", "Ph.D.", "me@example.com", "https://example.com/a,b;c?d=e",
        "www.a.org",
        "3. Oktober", "z. B. das", "approx. five", "10 000", "👨‍👩‍👧‍👦", "🇩🇪", "👍🏽", "e\u0301", "１０：３０",
        "3，5", "カー", "？」", "it's", "-5", "(c) that",
    ],
)  # fmt: skip
def test_what_belongs_together_is_not_cut(whole: str) -> None:
    """At each length of what stands before it, of words, and of ideographs; and in each clause of a text."""
    for before in range(14):
        for text in (f"{'so ' * before}{whole} and so on and so on. " * 4, f"{'好' * before}{whole}好好好好。" * 4):
            inner = [at for at in range(len(text)) if text.startswith(whole, at)]
            ends = list(itertools.accumulate(len(clause) for clause in said(text)))
            assert not [(at, end) for at in inner for end in ends if at < end < at + len(whole)], said(text)


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        # The first clause ends at the first mark behind half of six words, or at the sixth.
        ("The weather is fine, and it stays so.", ["The weather is fine, ", "and it stays so."]),
        ("It is a very fine day for all of us", ["It is a very fine day ", "for all of us"]),
        ("Yes. It is a fine day. We go.", ["Yes. It is a fine day. ", "We go."]),
        ("Is it true? It is! I know.", ["Is it true? ", "It is! I know."]),
        ("“Is it so?” Nobody knows it.", ["“Is it so?” ", "Nobody knows it."]),
        ("Come to the U.S. Embassy today. Then go.", ["Come to the U.S. Embassy today. ", "Then go."]),
        ("I said no. Dr. No was there.", ["I said no. ", "Dr. No was there."]),
        ("We wait – and then we go.", ["We wait – and then we go."]),
        ("Now we wait – and then we go.", ["Now we wait – ", "and then we go."]),
        ("1. Mix the flour\n2. Add the eggs\n", ["1. Mix the flour\n", "2. Add the eggs\n"]),
        ("今天天气很好，我们走吧。再见。", ["今天天气很好，", "我们走吧。再见。"]),
        ("「今日は暑い。」そうですね。", ["「今日は暑い。」", "そうですね。"]),
        ("", []),
        (" ", [" "]),
        ("?", ["?"]),
    ],
)
def test_clauses_end_where_sentences_and_phrases_do(text: str, clauses: list[str]) -> None:
    assert said(text) == clauses


def test_clauses_grow_and_then_keep_their_length() -> None:
    counts = [len(clause.split()) for clause in said("and so on " * 100)]
    assert counts[:6] == [6, 9, 14, 21, 30, 30]


@pytest.mark.parametrize(
    "unit", ["x", "1", "😀", "今", "\u0301", "👨‍👩‍👧‍👦", "word ", "1 ", "a, ", "Dr. ", "- ", "\n", "`"]
)
def test_a_text_without_an_end_is_cut_into_clauses_of_a_bounded_length(unit: str) -> None:
    text = (unit * 100_000)[:100_000]
    found = said(text)
    assert "".join(found) == text
    assert max(map(len, found)) <= 2 * LONGEST * WORD_LETTERS


def test_three_hundred_emoji_are_cut_between_two_of_them() -> None:
    family = "👨‍👩‍👧‍👦"
    assert all(len(clause) % len(family) == 0 for clause in said(family * 300))
    assert len(said("😀" * 300)) > 1


def test_what_is_left_out_of_the_answer_keeps_the_offsets_of_the_rest() -> None:
    cutter = Clauses()
    found = [*cutter.feed("It is ", 2), *cutter.feed("very fine, ", 10), *cutter.feed("so we go", 25)]
    assert [(clause.text, clause.sources[0], clause.end) for clause in found] == [("It is very fine, ", 2, 21)]
    assert (last := cutter.flush()) is not None
    assert (last.text, last.sources) == ("so we go", tuple(range(25, 33)))


def test_a_clause_tells_which_words_of_the_answer_have_been_said() -> None:
    clause = Clause("so it is, ", tuple(range(40, 50)))
    assert clause.words() == [(2 / 9, 42), (5 / 9, 45), (1.0, 50)], "the blanks behind the last word go with it"
    assert Clause("今天", (7, 8)).words() == [(0.5, 8), (1.0, 9)]
    assert Clause("  ", (3, 4)).words() == [(1.0, 5)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=40), st.integers(0, 20), st.integers(1, 30))
def test_another_replica_says_the_same_clauses_from_the_one_that_was_begun(
    pieces: list[str], lost: int, size: int
) -> None:
    text = " ".join(pieces)
    whole = cut([text])
    lost = lost % len(whole)
    said_ = whole[lost - 1].end if lost else 0
    resume = ResumePoint(said_, lost, whole[lost].end)
    chunks = [VoiceText(text[at : at + size], at) for at in range(0, len(text), size)]

    async def again() -> list[Clause]:
        return [one async for one in clauses(StageRequest(request(), 0, Listener(1000)), of(chunks), resume=resume)]

    found = asyncio.run(again())
    assert found[0] == whole[lost]
    assert "".join(clause.text for clause in found) == text[said_:]


async def test_a_clause_that_was_cut_short_elsewhere_is_cut_there_again() -> None:
    """Also where the listener runs dry meanwhile."""
    words = [*texts(f"word{i} " for i in range(20))]
    resume = ResumePoint(said=42, count=1, until=71)
    rows = clauses(StageRequest(request(), 0, Listener(0)), of(words), resume=resume)
    first = await anext(rows)
    assert (first.sources[0], first.end) == (42, 71)


class Listener:
    """A pace that is in a hurry from the ``dry``-th time on that it is asked."""

    def __init__(self, dry: int) -> None:
        self.left = dry

    def size(self, count: int) -> int:
        return 1

    def hurry(self) -> bool:
        self.left -= 1
        return self.left < 0


async def adapted(inputs: AsyncIterator[Chunk], dry: int = 1000) -> list[str]:
    return [clause.text async for clause in clauses(StageRequest(request(), 0, Listener(dry)), inputs)]


async def test_a_stage_gets_the_clauses_of_text_and_of_what_is_said_of_it() -> None:
    chunks = [Text("It is very fine, ", 0), VoiceText("and so ", 17), Usage(), VoiceText("are we.", 30)]
    assert await adapted(of(chunks)) == ["It is very fine, ", "and so are we."]
    assert await adapted(of([])) == []


async def test_a_clause_ends_sooner_where_its_listener_would_run_dry() -> None:
    words = [*texts(f"word{i} " for i in range(20))]
    assert [len(text.split()) for text in await adapted(of(words))] == [6, 9, 5]
    assert [len(text.split()) for text in await adapted(of(words), dry=10)] == [6, 4, 3, 3, 3, 1]


async def test_a_long_text_is_looked_at_in_pieces_between_which_others_have_their_turn() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    await adapted(of([Text("so " * AT_ONCE, 0)]))
    other.cancel()
    assert turns >= 2


async def test_the_offsets_of_a_long_text_are_those_of_the_answer() -> None:
    text = "so " * AT_ONCE
    rows = clauses(StageRequest(request(), 0, Listener(1000)), of([VoiceText(text, 7)]))
    assert [source async for clause in rows for source in clause.sources] == list(range(7, 7 + len(text)))


FAST = ChunkSpec(first=16, growth=1.5, steady=30)
WALK = "I would like to order two large pizzas with mushrooms and extra cheese, please. Thank you."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (WALK, ["I would like to order two large pizzas with mushrooms and extra cheese, ", "please. Thank you."]),
        ("Yes. It is open on all of the days of the week.", ["Yes. ", "It is open on all of the days of the week."]),
        ("Well, it is open, I think.", ["Well, it is open, ", "I think."]),
        ("word " * 40, ["word " * 16, "word " * 24]),
    ],
)
def test_a_fast_voice_begins_with_a_whole_phrase(text: str, found: list[str]) -> None:
    cutter = Clauses(FAST, phrases=True)
    clauses = [*cutter.feed(text, 0), cutter.flush()]
    assert [clause.text for clause in clauses if clause is not None] == found
