"""The scripted family's answers."""

from engine.core import Message, Request, TextPart, ToolCallPart, ToolResultPart
from engine.worker.models.script import _answer, _last_text  # pyright: ignore[reportPrivateUsage]


def said(request: Request, text: str) -> str:
    return " ".join(_answer(text, request).words)


def test_a_last_message_of_the_assistant_is_spoken_unless_the_user_speaks_after_it() -> None:
    history = (Message("assistant", (TextPart("good morning"),)),)
    typed = Request(id="r", session="s", messages=history)
    live = Request(id="r", session="s", messages=history, live=True)
    assert said(typed, "good morning") == "good morning"
    assert said(live, "say: I heard 2 seconds.") == "I heard 2 seconds."


def test_a_tools_result_is_told_and_the_answers_before_are_recalled() -> None:
    history = (
        Message("assistant", (TextPart("word0 word1"),)),
        Message("assistant", (ToolCallPart("time", "{}", "call_1"),)),
        Message("tool", (ToolResultPart("call_1", "noon"),)),
    )
    request = Request(id="r", session="s", messages=history)
    assert said(request, _last_text(request)) == "The tool says: noon"
    asked = Request(id="r", session="s", messages=(*history, Message("user", (TextPart("said"),))))
    assert said(asked, _last_text(asked)).split() == ["I", "said:", "word0", "word1"]
