"""Frames for follow-ups, corrections, facts and omissions in conversations. Data only."""

# ruff: noqa: E501 - one frame a line
# fmt: off

from __future__ import annotations

_AND = "(and|and|and what is|and what about|what about|how about|now|then|and now|||)"
_NO = "(no|no no|sorry|no sorry|oh no|wait|no wait|oh sorry|nano no|||)"
_MEANT = f"{_NO} (i meant|i mean|i said|i wanted|i was asking for|it should be|make that|that should be)"

MORE = (
    "(and |now |and now |then |)(plus|add) {n} (more|to that|to it|please|)", "and {n} (more|on top)",
    "(and |now |)(what is |)that plus {n}", "plus {n}", "(and |)if you add {n} (to that|to it|more)",
    "(now |)add another {n}",
)
LESS = (
    "(and |now |and now |then |)minus {n}", "(and |now |please |)(subtract|take away|take) {n} (from that|from it|away|)",
    "(and |now |)(what is |)that minus {n}", "minus {n}", "(and |){n} less", "(and |)without {n}",
    "(and |)if you (subtract|take away) {n}",
)
OTHER_NUMBER = (
    f"{_NO} not {{old}} (but|i said|i meant|) {{new}}", f"{_MEANT} {{new}} not {{old}}", f"{_NO} {{new}} not {{old}}",
    f"{_NO} {{new}} instead of {{old}}", "(and |)with {new} instead of {old}", f"{_NO} the {{old}} should be {{new}}",
)
WHOLE_SUM = (f"{_MEANT} {{a}} {{op}} {{b}}", f"{_NO} {{a}} {{op}} {{b}}", f"{_AND} {{a}} {{op}} {{b}}")
OTHER_SIGN = (
    f"{_MEANT} {{op}}",
    "(no|sorry|no no|no sorry) {op}",
    "not {old} (but|) {op}",
    f"{_NO} {{op}} not {{old}}",
)

NEXT_ONE = (
    "(and |)(after|what comes after|what is after|what follows) (that|it)", "and then (what|)", "and the next (one|)",
    "(and |)what (comes|is) next", "(the |and the |)next (one|)( please|)",
)
BEFORE_ONE = ("(and |)(before|what comes before|what is before) (that|it)", "(and |)the one before (that|it|)")
OTHER_DAY = (
    f"{_AND} {{new}}",
    f"{_MEANT} {{new}}",
    f"{_NO} {{new}}",
    f"{_NO} not {{old}} (but|i meant|) {{new}}",
    f"{_NO} {{new}} not {{old}}",
)
OTHER_SIDE = (f"{_MEANT} {{side}}", "(no|sorry|no no|no sorry|and|) {side}", "(and |no |)what comes {side} (it|that)")

OTHER_WORD = (
    "(and|and|and how about|what about|now|and the word|then|next) {new} (please|)", f"{_MEANT} {{new}}", f"{_NO} not {{old}} (but|i said|) {{new}}",
    f"{_NO} {{new}} not {{old}}", f"{_NO} the (word|name) (is|was) {{new}}",
)

TELL: dict[str, tuple[str, ...]] = {
    "name": ("my name is {x}", "(hello |hi |hey |)(i am|call me|my name's|i'm|this is) {x}", "(please |you can |)call me {x}", "(remember |)my name is {x}"),
    "color": ("my favorite (color|colour) is {x}", "(the |)(color|colour) i like (best|most) is {x}", "{x} is my favorite (color|colour)", "(remember |please remember |)my favorite (color|colour) is {x}"),
    "city": ("i live in {x}", "(remember |)my (city|town|home town|home) is {x}", "(i am|i come|i'm) from {x}", "(remember |please remember |)(that |)i live in {x}"),
    "age": ("i am {x} years old", "my age is {x}", "(remember |)(that |)i am {x} (years old|years)", "i turned {x} (today|yesterday)"),
    "dog": ("my (dog|dog's name) is (called |){x}", "(i have|i've got) a dog (called|named) {x}", "the name of my dog is {x}", "my dog is {x}"),
}
ASK: dict[str, tuple[str, ...]] = {
    "name": ("(so |and |nano |)what is my name (nano|now|)", "(do you |can you |)(still |)(know|remember) (my name|who i am|what my name is|what i am called)", "(please |can you |)tell me my name (again|)", "who am i", "what did i (say|tell you) my name (is|was)", "how am i called", "what do you call me", "what am i called"),
    "color": ("(so |and |nano |)what is my favorite (color|colour)", "(do you |)(still |)(know|remember) my favorite (color|colour)", "(which|what) (color|colour) do i like (best|most|)", "what did i say my favorite (color|colour) (is|was)", "tell me my favorite (color|colour)"),
    "city": ("(so |and |nano |)where do i live", "(do you |)(still |)(know|remember) where i (live|come from|am from)", "(which|what) (city|town) (do i live in|am i from|is mine)", "where am i from", "where did i say i live"),
    "age": ("(so |and |nano |)how old am i (now|)", "(do you |)(still |)(know|remember) (how old i am|my age)", "what is my age", "how old did i say i am"),
    "dog": ("(so |and |nano |)what is (my dog called|the name of my dog|my dog's name)", "(do you |)(still |)(know|remember) (my dog's name|the name of my dog|what my dog is called)", "how is my dog called", "tell me my dog's name", "what did i say my dog is called"),
}
OTHER_FACT = (
    f"{_MEANT} {{new}}",
    f"{_NO} (it is|that is|) {{new}} not {{old}}",
    f"{_NO} not {{old}} (but|it is|) {{new}}",
    f"{_NO} it is {{new}}",
    f"{_NO} {{new}}",
)
GREET_ME = (
    "(please |can you |now |)greet me (nano|please|)",
    "(please |can you |now |)greet me by (my |)name",
    "(please |can you |)welcome me",
)
CITIES = ["london", "paris", "berlin", "madrid", "rome", "vienna", "tokyo", "boston", "chicago", "toronto", "sydney", "dublin", "oslo", "lisbon", "athens", "cairo", "delhi", "moscow", "warsaw", "prague", "zurich", "geneva", "munich", "hamburg", "milan", "naples", "seattle", "denver", "dallas", "miami", "houston", "austin", "york", "leeds"]

LEFT_OUT: dict[str, tuple[tuple[str, ...], str]] = {
    "sum": (("(can you |please |could you |)add (two numbers|something|some numbers|numbers) (for me|please|)", "(can you |please |)do a sum (for me|)", "(can you |please |)add for me"), "Which numbers?"),
    "minus": (("(can you |please |could you |)subtract (two numbers|something|some numbers|numbers) (for me|please|)", "(can you |please |)take one number from another"), "Which numbers?"),
    "spell": (("(can you |please |could you |)spell (a word|something|a name|a word for me|something for me)", "(can you |please |)spell for me", "how do you spell it"), "Which word?"),
    "repeat": (("(can you |please |could you |)(repeat|say) (something|a word|some words|after me|something for me)", "repeat what i say"), "What shall I say?"),
    "count": (("(can you |please |could you |)count (for me|something|a little|please)", "(can you |please |)count", "start counting"), "Up to which number?"),
    "calendar": (("(what|which) day (comes|is) (next|after)", "tell me the next day"), "After which day?"),
}
"""Missing arguments: how users phrase such requests, and nano's question."""
GIVEN = {
    "sum": ("{a} and {b}", "{a} plus {b}", "(the numbers |)(are |){a} and {b}", "take {a} and {b}", "{a} {b}"),
    "minus": ("{b} from {a}", "{a} minus {b}", "(please |){b} from {a}", "take {b} from {a}"),
    "spell": ("{word}", "the (word|name) {word}", "{word} please", "(maybe|well|for example|try) {word}"),
    "repeat": ("{words}", "{words}"),
    "count": ("{n}", "(up |)to {n}", "(up |)to {n} please", "{n} please"),
    "calendar": ("{day}", "after {day}", "{day} please"),
}
WHICH_MODEL = (
    "(which|what) (bigger |other |)(model|models) (can|should|could|do) i (load|use|start|take|try)", "which (bigger |)(model|one) (is that|do you mean|would that be|is better)",
    "how (do|can) i (load|start|use|get|run) (a|the|that|one|another) (bigger|better|larger|real|other) model", "(what|which) bigger model", "(okay |)(load|start|use|get|give me|run) (a|the|that|another) (bigger|better|larger) model",
    "is there a (bigger|better|larger|smarter) (model|one|version)", "(and |)how do i do that", "(and |)how (does that work|can i load it)", "(and |)which one",
)
NEVER_MIND = ("never mind", "forget it", "nothing", "cancel", "stop")
AGAIN = (
    "(can you |please |could you |)(say|repeat) that (again|once more|one more time|) (please|)", "what did you (say|just say)",
    "(pardon|pardon me|once more|again|one more time|what was that) (please|)", "i did not (hear|understand|get) (you|that)", "(please |)repeat your (last|) answer",
)
