"""Thoughts before an answer are told from the answer, however the text is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.worker.llm.deltas import ReasoningDelta
from engine.worker.llm.reasoning_filter import ReasoningFilter


def split(*pieces: str) -> tuple[str, str]:
    """(thoughts, text)."""
    thoughts = ReasoningFilter()
    deltas = [one for piece in pieces for one in thoughts.feed(piece)] + thoughts.flush()
    thought = "".join(one.text for one in deltas if isinstance(one, ReasoningDelta))
    return thought, "".join(one for one in deltas if isinstance(one, str))


@pytest.mark.parametrize(
    ("written", "thought", "text"),
    [
        ("Hello", "", "Hello"),
        ("  Hello", "", "  Hello"),
        ("<think>So.</think>\n\nHello", "So.", "Hello"),
        ("\n<thinking>a < b</thinking>Hello", "a < b", "Hello"),
        ("<think>\n\n</think>\n\nHello", "\n\n", "Hello"),
        ("</think>\nHello", "", "Hello"),
        ("<think>one</think><think>two</think>Hello", "onetwo", "Hello"),
        ("<think>never closed", "never closed", ""),
        ("<th", "", "<th"),
        ("<b>Hello</b>", "", "<b>Hello</b>"),
        ("The tag <think> opens a thought, </think> closes it.", "", None),
        ("<think>over</thi", "over</thi", ""),
        ("<think>over</think>  ", "over", ""),
    ],
)
def test_what_stands_before_the_answer_is_a_thought(written: str, thought: str, text: str | None) -> None:
    assert split(written) == (thought, written if text is None else text)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<thi", "nk>", "</", " ", "\n", "so", "<", ">", "think"])))
def test_how_the_text_is_cut_makes_no_difference(pieces: list[str]) -> None:
    assert split(*pieces) == split("".join(pieces)) == split(*"".join(pieces))
