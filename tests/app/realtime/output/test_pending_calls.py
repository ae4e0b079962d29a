"""When the user hears something while tools run, by a clock that the tests move."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from app.mcp import MOST_CALLS
from app.realtime.output.pending_calls import PendingCalls, WaitLine
from app.realtime.output.tool_phrases import text_of
from app.realtime.protocol import ToolOptions

LINE_S, SYNTHESIS_S = 1.8, 0.4
"""Length of a spoken line, and the time until its first sound."""


class Wait:
    """A listener who hears what is due, at once and to its end."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.sound_ends_s = -math.inf
        self.calls = PendingCalls(lambda: self.now_s, lambda: None)
        self.heard: list[tuple[float, WaitLine]] = []
        self.longest_silence_s = 0.0

    def began(self, id: str = "a", hosted: bool = True, introduced: bool = False, **options: Any) -> None:
        self.calls.began(id, ToolOptions(**options), hosted, introduced)
        self.begun_s = self.now_s

    def run_until(self, end_s: float) -> list[str]:
        """Pass the time until ``end_s`` after the first second; return the kinds of the lines."""
        while (due := self.calls.due(self.sound_ends_s)) is not None and due[0] < 100.0 + end_s:
            at_s, line = due
            quiet_from_s = max(self.sound_ends_s, self.begun_s)
            self.now_s = max(at_s, self.now_s)
            self.calls.said(line)
            begins_s = self.now_s + (0.0 if line.kind == "sound" else SYNTHESIS_S)
            self.longest_silence_s = max(self.longest_silence_s, begins_s - quiet_from_s)
            self.sound_ends_s = begins_s + (0.25 if line.kind == "sound" else LINE_S)
            self.heard.append((self.now_s - 100.0, line))
            self.now_s = self.sound_ends_s
        self.now_s = 100.0 + end_s
        return [line.kind for _, line in self.heard]


def test_a_tool_of_a_minute_leaves_no_silence_of_three_seconds() -> None:
    wait = Wait()
    wait.began()
    kinds = wait.run_until(60)
    assert kinds[0] == "preamble"
    assert wait.longest_silence_s <= 3.0
    lines = [at_s for at_s, line in wait.heard if line.kind != "sound"]
    assert 5 <= len(lines) <= 7, "a line about every ten seconds, not every sound"
    assert all(later - earlier >= 10 for earlier, later in pairwise(lines))
    assert kinds.count("sound") > len(lines)


def test_a_quick_tool_is_not_spoken_about() -> None:
    wait = Wait()
    wait.began()
    assert wait.run_until(0.9) == []
    wait.calls.returned("a")
    assert wait.run_until(60) == []
    assert not wait.calls.busy


def test_a_tool_that_never_returns_is_not_spoken_about_for_ever() -> None:
    wait = Wait()
    wait.began()
    wait.run_until(3600)
    assert 290 < wait.heard[-1][0] < 301
    assert not wait.calls.busy


def test_a_call_that_the_model_introduced_has_no_preamble() -> None:
    wait = Wait()
    wait.began(introduced=True)
    assert wait.run_until(20) == ["sound", "sound", "sound", "sound", "progress", "sound", "sound", "sound"]
    spoken = Wait()
    spoken.began()
    spoken.sound_ends_s = spoken.now_s + 1.5  # the words before the call are still playing
    assert "preamble" not in spoken.run_until(60)


def test_settings_switch_each_part_off() -> None:
    cases: tuple[tuple[dict[str, Any], set[str]], ...] = (
        ({"preamble": "", "progress_s": 0.0}, {"sound"}),
        ({"progress_s": 0.0, "sound_s": 0.0}, {"preamble"}),
        ({"sound_s": 0.0}, {"preamble", "progress"}),
        ({"speech": False}, set()),
        ({"preamble": "", "progress_s": 0.0, "sound_s": 0.0}, set()),
    )
    for options, kinds in cases:
        wait = Wait()
        wait.began(**options)
        assert set(wait.run_until(60)) == kinds


def test_functions_of_the_client_are_spoken_about_only_if_it_asks() -> None:
    silent, spoken = Wait(), Wait()
    silent.began(hosted=False)
    spoken.began(hosted=False, speech=True)
    assert silent.run_until(60) == []
    assert "preamble" in spoken.run_until(60)


def test_parallel_calls_share_their_lines() -> None:
    one, several = Wait(), Wait()
    one.began()
    for id in "abc":
        several.began(id)
    assert several.run_until(60) == one.run_until(60)
    several.calls.returned("a")
    assert several.calls.due(several.sound_ends_s) is not None, "others are still running"


def test_nothing_is_said_while_the_user_speaks_and_no_line_follows_a_new_turn() -> None:
    wait = Wait()
    wait.began()
    wait.calls.user_speaks(True)
    assert wait.calls.due(wait.sound_ends_s) is None
    wait.now_s += 5
    wait.calls.user_speaks(False)  # it was only a noise
    due = wait.calls.due(wait.sound_ends_s)
    assert due is not None
    assert due[0] == wait.now_s + ToolOptions().preamble_s
    wait.calls.moved_on()
    assert wait.calls.due(wait.sound_ends_s) is None


def test_a_new_turn_cancels_the_calls_that_want_it() -> None:
    wait, cancelled = Wait(), list[str]()
    for id, policy in (("a", "cancel"), ("b", "continue")):
        wait.calls.began(id, ToolOptions(on_interrupt=policy), True, cancel=lambda id=id: cancelled.append(id))  # pyright: ignore[reportArgumentType]
    wait.calls.user_speaks(True)
    assert cancelled == [], "a noise cancels nothing"
    wait.calls.moved_on()
    assert cancelled == ["a"]


def test_a_result_waits_until_nobody_speaks_and_is_answered_once() -> None:
    wait = Wait()
    wait.began(answer=True)
    wait.calls.user_speaks(True)
    wait.calls.returned("a")
    assert not wait.calls.wants_answer
    wait.calls.user_speaks(False)
    assert wait.calls.wants_answer
    wait.calls.answered(["a"])
    wait.calls.returned("a")  # a client may send it twice
    assert not wait.calls.wants_answer
    assert not wait.calls.busy


def test_a_model_that_only_calls_tools_is_not_answered_for_ever() -> None:
    wait = Wait()
    for n in range(MOST_CALLS + 1):
        wait.began(str(n), answer=True)
        wait.calls.returned(str(n))
        assert wait.calls.wants_answer == (n < MOST_CALLS)
        wait.calls.asked()
        if n < MOST_CALLS:
            wait.calls.answered([str(n)])
    wait.calls.moved_on()
    assert wait.calls.wants_answer


@pytest.mark.parametrize(
    ("options", "language", "text"),
    [
        ({}, "en-US", "One moment, I'm checking."),
        ({}, "de", "Einen Moment, ich sehe nach."),
        ({"preamble": "Hold on."}, "de", "Hold on."),
        ({}, "xx", ""),
    ],
)
def test_a_line_has_the_words_of_its_tool_or_its_language(options: dict[str, Any], language: str, text: str) -> None:
    assert text_of(WaitLine("preamble", ToolOptions(**options)), language) == text


def test_progress_lines_take_turns() -> None:
    options = ToolOptions(progress=["one", "two"])
    assert [text_of(WaitLine("progress", options, n), "en") for n in range(3)] == ["one", "two", "one"]
    assert text_of(WaitLine("sound", options), "en") == ""
