"""What is only guessed at is asked back, and the reply decides."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import AudioPart, Message, TextPart
from engine.worker.models.nano.doubt import AGAIN, Settled, UserTranscript, settled


def user(text: str) -> Message:
    return Message("user", (TextPart(text),))


def nano(text: str) -> Message:
    return Message("assistant", (TextPart(text),))


BEFORE = (user("hello"), nano("Hello!"))
ASKED = (*BEFORE, user("spell banana"), nano("Did you say: spell banana?"))
MEANT = (*BEFORE, user("spell banana"))


def test_a_guess_is_asked_back_and_what_is_sure_is_not() -> None:
    assert settled(BEFORE, UserTranscript("spell banana", sure=False)).reply == "Did you say: spell banana?"
    assert settled(BEFORE, UserTranscript("spell banana")) == Settled(BEFORE, "spell banana")
    assert settled(BEFORE, UserTranscript("", sure=False)) == Settled(BEFORE, "")


@pytest.mark.parametrize("reply", ["Yes.", "yes please", "okay nano", "Right, that is right!"])
def test_yes_is_the_request(reply: str) -> None:
    assert settled(ASKED, UserTranscript(reply)) == Settled(MEANT, None)
    assert settled((*ASKED, user(reply)), None) == Settled(MEANT, None)
    spoken = Message("user", (AudioPart(np.zeros(1, np.int16)),))
    assert settled((*ASKED, spoken), UserTranscript(reply)) == Settled(MEANT, None)


def test_no_asks_for_it_again_and_is_forgotten() -> None:
    assert settled(ASKED, UserTranscript("no")) == Settled(BEFORE, "no", AGAIN)
    assert settled((*ASKED, user("no"), nano(AGAIN), user("spell apple")), None) == Settled(
        (*BEFORE, user("spell apple")), None
    )


def test_another_request_replaces_the_guess() -> None:
    assert settled(ASKED, UserTranscript("what time is it")) == Settled(BEFORE, "what time is it")
    later = (*ASKED, user("what time is it"), nano("It is 9:05."), user("thanks"))
    assert settled(later, None).messages == (*BEFORE, *later[-3:])


def test_the_confirmed_request_stays_in_the_conversation() -> None:
    later = (*ASKED, user("yes"), nano("b, a, n, a, n, a"), user("say that again"))
    assert settled(later, None).messages == (*MEANT, *later[-2:])


def test_without_a_question_yes_is_only_yes() -> None:
    assert settled(BEFORE, UserTranscript("yes")) == Settled(BEFORE, "yes")
    assert settled((*BEFORE, user("no")), None) == Settled((*BEFORE, user("no")), None)
