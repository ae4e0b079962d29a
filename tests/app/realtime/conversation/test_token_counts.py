"""Token counts: estimates, and what the model's own counts make of them."""

from __future__ import annotations

from app.realtime.conversation.token_counts import TokenCounts
from tests.app.realtime.conversation.test_truncation import MODEL, said


def test_thoughts_count_no_more_than_the_bytes_of_the_answer() -> None:
    counts, answer = TokenCounts(MODEL), said(0, "assistant")
    counts.wrote((answer,), 5000)
    assert counts.of(answer) == 10


def test_the_next_prompt_shows_what_each_new_part_took() -> None:
    counts, [user, answer, more] = TokenCounts(MODEL), [said(0), said(0, "assistant"), said(1)]
    counts.read((user,), 0, 30)
    counts.wrote((answer,), 10)
    counts.read((user, answer, more), 0, 30 + 80)
    assert [counts.of(item) for item in (user, answer, more)] == [30, 40, 40]
    counts.read((user, answer, more), 0, 5)
    assert counts.of(more) == 40, "a server that leaves out what it had computed"
    shorter = said(1, length=5)
    assert counts.of(shorter) == 20, "it was truncated since"


def test_what_a_template_adds_is_learned_apart_from_the_messages() -> None:
    counts = TokenCounts(MODEL)
    counts.read((said(0),), 10, 40)
    assert (counts.head(10), counts.of(said(0))) == (20, 20)
    assert counts.head(110) == 120
