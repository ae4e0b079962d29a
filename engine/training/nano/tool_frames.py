"""How people ask for what tools do: frames with slots. Data only."""

# ruff: noqa: E501 - one frame a line
# fmt: off

from __future__ import annotations

from engine.worker.models.nano.skills import SKILLS

_ASK = "(please |can you |could you |can you please |would you |nano ||||)"
_NO = "(no|sorry|no sorry|no no|oh no|wait no||)"

TIMER = (
    f"{_ASK}(set|start|make|create) (a|the|me a|another) timer (for|of) {{time}} (please|nano|)", f"{_ASK}(set|start) (a|the) {{time}} timer",
    "timer (for |){time}", "{time} timer (please|)", f"{_ASK}(time|count) {{time}} (for me|)", "i need a timer (for|of) {time}",
    "(can i have|give me) a (timer of {time}|{time} timer)", f"{_ASK}let me know (when|after) {{time}} (are over|have passed|)", "tell me when {time} (are over|have passed)",
)
ON_OFF = (
    f"{_ASK}(turn|switch) {{state}} (the|my|all the|) (light|lights|lamp|lamps)", f"{_ASK}(turn|switch|put) (the|my|all) (light|lights|lamp) {{state}}",
    "(light|lights|lamp) {state} (please|now|)", f"{_ASK}(turn|switch) it {{state}} again",
)
ROOM_ON_OFF = (
    f"{_ASK}(turn|switch) {{state}} the (light|lights|lamp) in (the|my) {{room}}", f"{_ASK}(turn|switch) {{state}} (the|my) {{room}} (light|lights|lamp)",
    f"{_ASK}(turn|switch|put) the (light|lights) in the {{room}} {{state}}", f"{_ASK}(turn|switch) the {{room}} (light|lights|lamp) {{state}}", "{room} (light|lights) {state}",
)
LIT = (
    f"{_ASK}(make|turn|set|change|switch) (the|my) (light|lights|lamp) (to |){{color}}", "{color} (light|lights) (please|)", "(i want|i would like|give me) {color} light",
    f"{_ASK}(set|change) the (color|colour) of the (light|lights|lamp) to {{color}}",
)
WEATHER = (
    "(what is|how is|nano what is|tell me|and how is) the weather (like |)in {place}", "(the |)weather (in|for) {place} (please|)", "(will|does|is) it (rain|raining|snow|cold|warm|hot|sunny|windy|going to rain) in {place}",
    "what is the (forecast|temperature) (for|in) {place}", "how (cold|warm|hot|windy|sunny) is it in {place}", f"{_ASK}(check|get|tell me|show me) the (weather|forecast) (in|for) {{place}}", "(do i need|should i take) an umbrella in {place}",
)
DAY_WEATHER = (
    "(what is|how is|how will) the weather (be |like |)in {place} {day}", "(will it rain|will it snow|is it cold|will it be sunny|is it going to rain) in {place} {day}", "what is the (forecast|weather) for {place} {day}",
    f"{_ASK}(check|get|tell me) the (weather|forecast) for {{place}} {{day}}", "what (is|will) the weather (be |)(for |){day} in {place}",
)
LEVEL = (
    f"{_ASK}(set|turn|change|put) (the|your) (volume|sound) (to|at) {{level}} (percent|please|)", "volume (to |at |){level} (percent|please|)", f"{_ASK}(make|set) (it|the volume) {{level}} percent",
)
STEP = {
    "up": (f"{_ASK}(turn|put) (the|your) (volume|sound) up (a bit|a little|please|)", f"{_ASK}(turn|put) up (the|your) (volume|sound)", "(a bit |a little |much |)louder (please|)", f"{_ASK}(speak|talk|be) (louder|up)", "(make it|i want it) louder", "volume up (please|)", "you are too quiet"),
    "down": (f"{_ASK}(turn|put) (the|your) (volume|sound) down (a bit|a little|please|)", f"{_ASK}(turn|put) down (the|your) (volume|sound)", "(a bit |a little |much |)(quieter|softer) (please|)", f"{_ASK}(speak|talk|be) (quieter|softer|more quietly)", "(make it|i want it) (quieter|softer)", "volume down (please|)", "you are too loud"),
}

LEFT_OUT: dict[str, tuple[tuple[str, ...], str]] = {
    "timer": ((f"{_ASK}(set|start|make) (a|the|me a) timer (please|for me|)", "(i need|give me) a timer", "timer please", "a timer"), "For how long?"),
    "weather": (("(what is|how is|tell me) the weather (like |)(today|now|please|)", "(will it|does it) rain (today|)", "is it (cold|warm) (outside|today)", "the weather (please|)", "(what is|tell me) the forecast"), "In which city?"),
    "volume": ((f"{_ASK}(set|change|adjust) (the|your) (volume|sound)", "the volume (please|)", f"{_ASK}change how loud you are"), "To which level?"),
    "light": ((f"{_ASK}(change|set) the (color|colour) of the (light|lights|lamp)", f"{_ASK}change the (light|lamp) (color|colour)", f"{_ASK}(make|give) the light (another|a different) (color|colour)"), "Which color?"),
}
GIVEN = {
    "timer": ("{time}", "for {time}", "{time} please", "(make it|let us say|say about|i think|well|maybe) {time}", "for {time} please", "{time} should do"),
    "weather": ("{place}", "in {place}", "{place} please", "(for|i mean|well|here in) {place}", "(i live in|i am in) {place}"),
    "volume": ("{level}", "(to |at ){level} (percent|please|)", "{level} percent", "(make it|set it to) {level}"),
    "light": ("{color}", "{color} please", "(to |make it |i like |let us take |maybe ){color}"),
}
ONCE_MORE = {
    "timer": (f"{_NO} (i meant|i said|make it|make that|i mean|it should be) {{time}}", f"{_NO} {{time}}", f"{_NO} not {{oldtime}} (but|) {{time}}", f"{_NO} {{time}} not {{oldtime}}", "(and |)another (one |)for {time}", "(and one|and another) (for|of) {time}", "and {time}"),
    "weather": ("(and|and|what about|how about|and what about) (in |){place}", f"{_NO} (i meant|i said|i mean) (in |){{place}}", f"{_NO} in {{place}}", f"{_NO} not {{oldplace}} (but |){{place}}", f"{_NO} {{place}} not {{oldplace}}", "(now|also|then) {place}"),
    "volume": ("(no|and now|now|sorry) (to |){level} (percent|)", f"{_NO} (i meant|i said|make it) {{level}}"),
    "light": (f"{_NO} (i meant|i said|make it|i want it) {{color}}", "(no|sorry|and now|now|and) {color}", f"{_NO} (make|turn) (it|them) {{color}}", f"{_NO} {{color}} (please|)"),
}
BACK = (
    "(and |)(now |)(turn|switch) (it|them) {state} (again|please|)",
    f"{_NO} (i meant|i said) {{state}}",
    "(no|sorry|and now|now|and) {state} (again|please|)",
)

UNKNOWN_TOOLS = (
    f"{_ASK}(cancel|stop|pause|delete) (the|my|that) timer", f"{_ASK}(set|make) an alarm for (7|8|6|half past 6|{{n}}) (in the morning|tomorrow|)", "how much time is left on (the|my) timer", f"{_ASK}dim the (light|lights|lamp)",
    f"{_ASK}(turn|switch) (on|off|up|down) the (heating|television|radio|fan|oven|music)", f"{_ASK}(play|stop|pause) the (music|song|radio)", f"{_ASK}(open|close|lock) the (door|window|garage|blinds)",
)

FINE = (
    "ok",
    "done",
    "true",
    "success",
    "ok true",
    "on",
    "off",
    "set",
    "started",
    "0",
    "completed",
    "timer set",
    "light on",
    "",
)
BAD = (
    "error {x}",
    "failed {x}",
    "error",
    "error not found",
    "failed: {x} is offline",
    "timeout",
    "error timeout",
    "not found",
    "unavailable",
    "error no connection",
)
ROOMS = (
    "kitchen",
    "bedroom",
    "bathroom",
    "hallway",
    "garage",
    "garden",
    "office",
    "living room",
    "dining room",
    "basement",
    "attic",
    "hall",
    "study",
    "cellar",
)
NAMES = tuple(skill.name for skill in SKILLS)
