"""The turn that is being spoken, and what was heard a moment ago."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.realtime.conversation.utterance import Utterance
from app.realtime.input.recent_audio import RecentAudio
from app.refusal import Refusal
from engine import Speech


def block(*samples: int) -> np.ndarray:
    return np.array(samples, np.int16)


async def heard(turn: Utterance) -> list[int]:
    return [int(sample) async for chunk in turn.follow() if isinstance(chunk, Speech) for sample in chunk.pcm]


async def test_every_reader_hears_the_whole_turn_whenever_it_comes() -> None:
    turn = Utterance(limit_samples=100)
    async with asyncio.TaskGroup() as tasks:
        early = tasks.create_task(heard(turn))
        await asyncio.sleep(0)
        turn.push(block(1, 2))
        await asyncio.sleep(0)
        middle = tasks.create_task(heard(turn))
        await asyncio.sleep(0)
        turn.push(block())
        turn.push(block(3))
        turn.close()
        turn.close()
    assert early.result() == middle.result() == await heard(turn) == turn.pcm.tolist() == [1, 2, 3]
    assert turn.samples == 3


async def test_what_comes_after_a_pause_is_heard_by_nobody_unless_the_user_goes_on() -> None:
    turn = Utterance(limit_samples=100)
    async with asyncio.TaskGroup() as tasks:
        early = tasks.create_task(heard(turn))
        await asyncio.sleep(0)
        turn.push(block(1, 2))
        turn.pause()
        turn.push(block(0, 0))  # before the reader has its turn
    assert early.result() == await heard(turn) == turn.speech.tolist() == [1, 2]
    assert turn.pcm.tolist() == [1, 2, 0, 0]
    turn.resume()
    turn.push(block(3))
    turn.close()
    assert await heard(turn) == turn.speech.tolist() == turn.pcm.tolist() == [1, 2, 0, 0, 3]


async def test_a_reader_that_leaves_disturbs_nobody() -> None:
    turn = Utterance(limit_samples=100)
    one, other = asyncio.ensure_future(heard(turn)), asyncio.ensure_future(heard(turn))
    await asyncio.sleep(0)
    one.cancel()
    turn.push(block(1))
    turn.close()
    assert await other == [1]
    with pytest.raises(asyncio.CancelledError):
        await one


@pytest.mark.parametrize(
    ("final", "whole", "words"),
    [
        ("hello there", True, "hello there"),
        ("", False, "hello"),
        ("hello nano", False, "hello"),
        ("well", None, "well"),
    ],
)
def test_words_that_are_no_request_are_kept_as_they_were_heard(final: str, whole: bool | None, words: str) -> None:
    turn = Utterance(limit_samples=100)
    turn.understand("hello", False, None)
    assert (turn.words, turn.whole, turn.listening) == ("", None, True)
    turn.understand(final, True, whole)
    assert (turn.words, turn.whole, turn.listening) == (words, whole, False)
    turn.understand("hello", False, None)
    turn.resume()
    assert (turn.words, turn.whole, turn.listening) == ("", None, False)


def test_past_the_limit_nothing_of_a_block_is_taken() -> None:
    turn = Utterance(limit_samples=3)
    turn.push(block(1, 2))
    with pytest.raises(Refusal):
        turn.push(block(3, 4))
    assert turn.pcm.tolist() == [1, 2]


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(0, 100), st.integers(0, 1000))
def test_what_is_kept_reaches_back_far_enough_and_not_much_further(sizes: list[int], keep: int, since: int) -> None:
    recent, whole = RecentAudio(), np.arange(sum(sizes), dtype=np.int16)
    at = 0
    for size in sizes:
        recent.push(whole[at : at + size], keep)
        at += size
    assert recent.position == len(whole)
    start = min(len(whole), max(len(whole) - keep, since))
    assert recent.since(start).tolist() == whole[start:].tolist()
    assert len(recent.since(0)) <= keep + 50


def test_who_goes_on_has_not_been_heard_to_the_end() -> None:
    turn = Utterance(1000)
    turn.understand("hello", False, None)
    assert turn.confident is None
    turn.understand("hello", True, None, confident=False)
    assert turn.confident is False
    turn.resume()
    assert turn.confident is None
