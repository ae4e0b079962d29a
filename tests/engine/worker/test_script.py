"""The scripted family's answers."""

from engine.core import Message, Request, TextPart
from engine.worker.models.script import _answer  # pyright: ignore[reportPrivateUsage]


def said(request: Request, text: str) -> str:
    return " ".join(_answer(text, request).words)


def test_a_last_message_of_the_assistant_is_spoken_unless_the_user_speaks_after_it() -> None:
    history = (Message("assistant", (TextPart("good morning"),)),)
    typed = Request(id="r", session="s", messages=history)
    live = Request(id="r", session="s", messages=history, live=True)
    assert said(typed, "good morning") == "good morning"
    assert said(live, "say: I heard 2 seconds.") == "I heard 2 seconds."
