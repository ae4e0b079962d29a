"""Samples dialogues about pictures: one to four turns about a new picture or the last one.

It produces only the questions; ``seeing`` in the worker produces the answers.
"""

# ruff: noqa: E501 - one template a line

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from engine.training.nano import scenery
from engine.training.nano.turns import Dialogue, Request, Turn, allowed, as_typed, calling, dressed, expand
from engine.worker.models.nano.scene import COLOURS, MOTIONS, SHAPES, UNSURE, Scene
from engine.worker.models.nano.seeing import Wanted

_C = "(color|colour)"
_WHICH = "(what|which|what|in which)"

QUESTIONS: dict[str, tuple[str, ...]] = {
    "describe": (
        "(so |and |nano |now |okay |hey |)what (do|can) you see (now|here|there|nano|in front of you|)",
        "(please |can you |could you |)(describe|explain|look at) (this|the|my) (picture|image|photo|scene|photograph)",
        "what (is|can you see|do you see|is shown) (in|on) (this|the|my) (picture|image|photo|photograph|screen)",
        "(please |can you |could you |)(describe|tell me) what (you see|you can see|is there|you are seeing)",
        "(what|who) is (this|that|it|there)",
        "(look at|see|check) (this|that|here|me)",
        "can you see (this|it|anything|something|me|what i have here) (now|)",
        "what (do|have) i (have|got) (here|in my hand|there)",
        "what am i (holding|showing you|holding up|holding in my hand) (now|here|)",
        "(tell me |)what is (here|there|in view|in front of you|in front of the camera)",
        "(have a look|take a look|look) (please|nano|now|)",
        "what is on (the table|the paper|the card|the wall|my desk)",
        "do you see (something|anything) (now|here|)",
        "describe (it|this|that)",
    ),
    "color_it": (
        f"{_WHICH} {_C} (is|has) (it|this|that|the thing|the shape|the object) (got|)",
        f"(tell me |name |say )(the|its) {_C}",
        f"(can|could) you (tell me|see|name) (the|its) {_C}",
        f"{_C} please", f"what is (the|its) {_C}",
        f"{_WHICH} {_C} (do you see|am i holding|are they|are these)",
        "is it (red|blue|green|yellow) or (red|blue|green|black|white)",
    ),
    "shape": (
        "(what|which) (shape|form) (is|has) (it|this|that|the thing)",
        "what (shape|form|kind of shape) (is it|do you see|am i holding|are they)",
        "(tell me |name )the shape",
    ),
    "color": (
        f"{_WHICH} {_C} (is|has) (the|that|this|my) {{one}}",
        f"{_WHICH} {_C} are (the|those|these|my) {{many}}",
        f"(can you |please |could you |)(tell me|say|name) the {_C} of the ({{one}}|{{many}})",
        f"what is the {_C} of (the|that|this) {{one}}",
        f"(and |so |nano )what {_C} is the {{one}}",
        f"the {{one}} is which {_C}",
        f"do you know {_WHICH} {_C} the {{one}} is",
    ),
    "count": (
        "how many {many} (are there|do you see|can you see|are in the picture|am i holding|are visible|)",
        "(please |can you |could you |nano |)count the {many}",
        "(so |and |)how many {many} (do you see|are there|)", "(tell me|do you know) how many {many} (there are|you see)",
        "what is the number of {many}",
    ),
    "count_all": (
        "how many (are there|do you see|can you see|of them|are they|)",
        "how many (things|shapes|objects) (are there|do you see|can you see|are in the picture|)",
        "(can you |please |)count (them|the things|the shapes|everything)",
    ),
    "where": (
        "where (is|do you see|can you see) (the|that|my|a) {one}",
        "where are (the|those|my) {many}",
        "(can you |please |)(find|show me|point at|point to|locate) the {one}",
        "(tell me |do you know |can you see )where the {one} is",
        "on which side is the {one}", "(and |so |nano )where is the {one}",
        "is the {one} on the (left|right) or on the (left|right)",
    ),
    "where_it": ("where is (it|that|this)", "where are they", "where do you see (it|that|them)", "on which side (is it|)"),
    "there": (
        "is there (a|any|one) {one} (in the picture|there|here|)",
        "(do|can) you see (a|any|the|my) {one} (in the picture|there|here|)",
        "are there (any|some) {many} (in the picture|there|here|)",
        "(do|can) you see (any|the|some) {many}",
        "is a {one} (there|in the picture|visible)",
        "(and |so )is there a {one}",
    ),
    "dark": (
        "is it (too |very |rather |)dark (in here|here|now|outside|there|in the room|)",
        "is (the room|this room|the picture|the image|my room) (too |very |)dark",
        "are we in the dark", "am i in the dark",
    ),
    "bright": (
        "is it (too |very |)(light|bright) (in here|here|now|outside|there|enough|)",
        "is there (enough |)light (in here|)",
    ),
    "lighting": (
        "how (is the light|bright is it|dark is it|is the lighting)", "is it dark or (light|bright)",
        "is it (light|bright) or dark",
    ),
    "moving": (
        "is (it|this|that|something|anything|the {one}) moving (now|)",
        "(does|did) (it|something|anything|the {one}) move",
        "(which way|where|in which direction) (is it|does it) (moving|move|going|go)",
        "do you see (any |)(movement|motion)", "am i moving",
    ),
    "read": (
        "what (does it|does this|does the card|does the paper|does the sign|does that) say",
        "(which|what) (number|letter|digit|figure|letters|numbers) (am i holding up|am i showing|is this|is it|is that|do you see|is on the card|is written here)",
        "(please |can you |could you |)read (this|it|that|the text|the sign|the card|the number|the letters) (for me|to me|please|)",
        "what is written (here|there|on it|on the card|on the paper|on the sign)",
        "(can you read|do you see) (the|a|any) (number|letter|text|letters|numbers|writing)",
        "what (number|letter|text) (do i have|have i got) (here|there|)",
    ),
    "background": (
        f"{_WHICH} {_C} (is|has) (the|my) (background|wall|back)",
        f"what is the {_C} of the (background|wall)",
        "what is (behind it|in the background|behind that)",
    ),
    "beyond": (
        "who (is|am|are) (this|that|he|she|i|the man|the woman|they|in the picture)",
        "(is|do you see) (there|this|that|) (a|the|my) (dog|cat|person|house|tree|car|man|woman|child|face|phone|book|cup)",
        "how many (people|fingers|dogs|cats|cars|men|women|children|faces|books) (are there|do you see|am i holding up|)",
        "how (old|big|tall|heavy|nice) (am i|is he|is she|do i look|is this)",
        "what am i wearing", f"what {_C} (is|are) my (hair|eyes|shirt|dress|jacket|shoes)",
        "(do i|does he|does she) look (good|tired|happy|sad|old|young)",
        "am i (smiling|pretty|a man|a woman|happy|tired)",
        "where (was|is) this (taken|place|picture from)",
        "what (animal|kind of animal|flower|car|brand|kind of tree|plant) is (this|that|it)",
    ),
}  # fmt: skip
"""Kind -> templates of questions. {one} and {many} stand for the object of the question."""

WITH_BEFORE: dict[str, tuple[str, ...]] = {
    "still": (
        "is (the {one}|it|that|the {one}) still (there|here|in view) (now|nano|)",
        "(do|can) you still see (the {one}|it|that|the {one}) (now|)",
        "are (they|the {many}) still (there|here)", "and now is the {one} still there",
    ),
    "gone": ("is (the {one}|it|that) gone (now|)", "has (the {one}|it) (gone|disappeared|left)", "are (they|the {many}) gone"),
    "changed": (
        "what (has |is |)(changed|different|new|happened) (now|here|since then|)",
        "what did i (change|do|move|take away|add)",
        "(do|can) you (see|notice|find|spot) (a|any|the) (change|difference)", "(do|can) you (see|tell|tell me) what (changed|is different)",
        "has (anything|something) changed (now|)", "is (anything|something) (different|new|missing) (now|)",
        "(and now|now|what about now|and what about now)", "what is (missing|new|gone)",
    ),
}  # fmt: skip

AGAIN = ("(and|and|what about|how about|and what about) (the|the|my) {x}", "(and|now|also) the {x} (please|)")
MEANT = (
    "(no|sorry|no no|no sorry|) (i meant|i mean|i asked about|i was asking about|i said) (the|the|a) {x}",
    "not the {y} (but|) the {x}", "(no|sorry) (not that|not the {y}|) the {x}", "(no |)the {x} i (meant|mean|said)",
)  # fmt: skip
"""The same question about another object. {x} is the new object, {y} the old one."""

ABOUT_ONE = ("color", "count", "where", "there")
"""Kinds whose questions name an object."""
PRONOUN = {"color_it": "color", "where_it": "where", "count_all": "count"}
"""Kind with a pronoun ("it", "them") -> kind; it refers to the object of the last question, or without one to any."""
WEIGHTS = {
    "describe": 20, "color_it": 7, "shape": 5, "color": 14, "count": 18, "count_all": 8, "where": 14,
    "where_it": 5, "there": 10, "dark": 3, "bright": 3, "lighting": 2, "moving": 5, "read": 10, "background": 4, "beyond": 7,
}  # fmt: skip
UNSEEN = tuple(
    kind for kind in WEIGHTS if kind not in ("beyond", "bright", "lighting", "dark", "count_all", "where_it", "moving")
)
"""Questions that can only be about a picture, even where there is none."""


def looking_dialogue(rng: random.Random, other: Callable[[], Turn]) -> Dialogue:
    """Return one to four turns about pictures; ``other`` makes a turn about something else."""
    if rng.random() < 0.1:
        return (_without_picture(rng),)
    scene = scenery.for_training(lambda: scenery.sample_scene(rng, rng.choice((1, 1, 2))))
    before: Scene | None = None
    turns: Dialogue = ()
    for n in range(rng.choice((1, 1, 2, 2, 3, 4))):
        fresh = n == 0 or rng.random() < 0.45
        if n and fresh:
            before, scene = scene, scenery.for_training(partial(_later, rng, scene))
        turn = _looked(rng, turns, before if fresh else None, scene, fresh, other)
        turns += (replace(turn, scene=scene if fresh else None),)
    return turns


def _later(rng: random.Random, scene: Scene) -> Scene:
    if rng.random() < 0.15:
        return scenery.sample_scene(rng, 2 if scene.motion else 1)
    later = scenery.changed(rng, scene)
    return replace(later, motion=rng.choice(MOTIONS)) if scene.motion else later


def _looked(
    rng: random.Random, turns: Dialogue, before: Scene | None, scene: Scene, fresh: bool, other: Callable[[], Turn]
) -> Turn:
    """Return the next turn about ``scene``, which arrived with it if ``fresh``; ``before`` is the picture before
    that.
    """
    if rng.random() < 0.1:
        return other()
    if before and rng.random() < 0.6:
        return _compared(rng, before, turns[-1])
    if turns and rng.random() < 0.35 and (again := _referring(rng, turns[-1], scene)):
        return again
    if fresh and rng.random() < 0.06:
        return calling("", "look describe")
    return _asked(rng, scene, turns[-1] if turns else None)


def _without_picture(rng: random.Random) -> Turn:
    kind = rng.choice(UNSEEN)
    wanted = _about(rng, None)
    return _call(_question(rng, QUESTIONS[kind], wanted), kind, wanted)


def _asked(rng: random.Random, scene: Scene, last: Turn | None = None) -> Turn:
    """Return any question; "it" means the object of the last question, or without one the largest object in view."""
    kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    wanted = _about(rng, scene)
    text = _question(rng, QUESTIONS[kind], wanted)
    if kind in PRONOUN and last and (topic := _topic(last)):
        wanted = topic[1]
    elif kind in PRONOUN:
        wanted = Wanted()
    return _call(text, kind, wanted)


def _call(text: str, kind: str, wanted: Wanted) -> Turn:
    kind = PRONOUN.get(kind, kind)
    if kind not in ABOUT_ONE:
        return calling(text, f"look {kind}")
    topic = f"{kind}:{wanted.colour}:{wanted.shape}" if wanted != Wanted() else ""
    return calling(text, f"look {kind} {wanted.colour} {wanted.shape}", topic)


def _referring(rng: random.Random, last: Turn, scene: Scene) -> Turn | None:
    """Return the last question about another object, or None if the last turn was no question about an object."""
    topic = _topic(last)
    if topic is None:
        return None
    kind, old = topic
    wanted = _about(rng, scene)
    template = expand(rng, rng.choice(AGAIN if rng.random() < 0.6 else MEANT))
    slot = rng.choice(("{one}", "{one}", "{many}"))
    return _call(_question(rng, (template.replace("{x}", slot),), wanted, old), kind, wanted)


def _topic(turn: Turn) -> tuple[str, Wanted] | None:
    kind, _, wanted = turn.topic.partition(":")
    return (kind, Wanted(*wanted.split(":"))) if kind else None


def _compared(rng: random.Random, before: Scene, last: Turn) -> Turn:
    """Return a question that compares two pictures; "it" means the object of the last question."""
    kind = rng.choice(("still", "still", "gone", "changed", "changed", "changed"))
    wanted = _about(rng, before)
    template = expand(rng, rng.choice(WITH_BEFORE[kind]))
    text = _question(rng, (template,), wanted)
    if kind == "changed":
        return calling(text, "look changed")
    if "{" not in template:
        topic = _topic(last)
        wanted = topic[1] if topic else Wanted()
    return calling(text, f"look {kind} {wanted.colour} {wanted.shape}")


def _about(rng: random.Random, scene: Scene | None) -> Wanted:
    """Return an object, usually one in view: a shape, a coloured shape, or coloured things."""
    colour, shape = rng.choice(COLOURS), rng.choice(SHAPES)
    if scene and scene.groups and rng.random() < 0.75:
        group = rng.choice(scene.groups)
        colour = group.colour if group.colour != UNSURE else colour
        shape = group.shape if group.shape != UNSURE else shape
    return rng.choices((Wanted("", shape), Wanted(colour, shape), Wanted(colour, "")), (6, 3, 1))[0]


def _question(rng: random.Random, templates: tuple[str, ...], wanted: Wanted, old: Wanted | None = None) -> str:
    while True:
        text = dressed(rng, expand(rng, rng.choice(templates)))
        text = text.replace("{one}", wanted.one).replace("{many}", wanted.many)
        text = " ".join(text.replace("{y}", old.one if old else "").split())
        text = text.replace("gray", rng.choice(("gray", "grey")))
        if allowed(Request(text, {"kind": "see"})):
            return as_typed(rng, Request(text, {"kind": "see"})).text
