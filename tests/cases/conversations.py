"""Conversations as sessions really have them, for tests of prompts and chat templates."""

from __future__ import annotations

from engine.core import Message, Part, TextPart, ToolCallPart, ToolResultPart

CALL = ToolCallPart("timer", '{"minutes":5}', "c1")
RESULT = Message("tool", (ToolResultPart("c1", "done"),))
RESULTS = (RESULT, Message("tool", (ToolResultPart("c2", "done, too"),)))


def user(*parts: Part | str) -> Message:
    return Message("user", _parts(parts))


def assistant(*parts: Part | str) -> Message:
    return Message("assistant", _parts(parts))


def system(text: str) -> Message:
    return Message("system", _parts((text,)))


def _parts(parts: tuple[Part | str, ...]) -> tuple[Part, ...]:
    return tuple(TextPart(part) if isinstance(part, str) else part for part in parts)


SHAPES: dict[str, tuple[Message, ...]] = {
    "a question": (system("Be brief."), user("Hi.")),
    "no instructions": (user("Hi."),),
    "a greeting that is asked for": (system("Greet the caller."),),
    "a greeting that was said": (system("Be brief."), assistant("Bicycle shop, good day."), user("Hi.")),
    "an answer again": (user("Hi."), assistant("Hello.")),
    "a greeting, and again": (system("Be brief."), assistant("Good day.")),
    "several turns": (user("Hi."), assistant("Hello."), user("How are you?"), assistant("Fine."), user("Good.")),
    "two messages in a row": (
        user("Hi."),
        user("Are you there?"),
        assistant("Yes."),
        assistant("I am."),
        user("Good."),
    ),
    "instructions in between": (user("Hi."), assistant("Hello."), system("Be formal."), user("And now?")),
    "an empty answer": (user("Hi."), assistant(""), user("Are you there?"), assistant(" \n"), user("Hello?")),
    "an empty turn": (user(""), assistant("I did not hear you."), user(" ")),
    "a tool's result": (user("Set a timer."), assistant(CALL), RESULT),
    "a tool's result and its answer": (user("Set a timer."), assistant(CALL), RESULT, assistant("Set."), user("Good.")),
    "a turn after a tool's result": (user("Set a timer."), assistant(CALL), RESULT, user("And the lights?")),
    "a call of the first answer": (system("Look up the caller."), assistant(CALL), RESULT),
    "words before a call": (user("Set a timer."), assistant("One moment.", CALL), RESULT, user("Quick!")),
    "a call without a result": (
        user("Set a timer."),
        assistant(CALL),
        user("Leave it."),
        assistant("Fine."),
        user("Hm."),
    ),
    "a result without a call": (RESULT, user("Hi."), RESULT, assistant("Hello."), user("Good.")),
    "two calls at once": (
        user("Set two."),
        assistant(CALL, ToolCallPart("timer", "{}", "c2")),
        *RESULTS,
        user("Good."),
    ),
    "nothing": (),
}
