"""Dialogues about what the eyes see: a scene's text, questions about it, and what follows from the text alone.

The text's form is the one that ``engine/worker/models/nano/scene.py`` writes behind a picture's mark. It knows no pixel
and no token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.worker.models.nano.scene import UNSURE

PLACES = ("left", "right", "top", "bottom", "middle", "top left", "top right", "bottom left", "bottom right")
COUNTS = ("1", "2", "3", "4", "5", "many")
MOTIONS = ("still", "moving", "moving left", "moving right", "moving up", "moving down")
UNCLEAR = "unclear"

CANNOT_TELL = "I can't tell."
NO_PICTURE = "I have no picture. Turn on your camera."
NOTHING_CLEAR = "I can't make anything out."
BEYOND = "I can't tell. I only know colors, shapes, letters and numbers."


@dataclass(frozen=True, slots=True)
class Group:
    """Things of one colour and shape; ``place`` is "" where they are spread."""

    count: str
    colour: str
    shape: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.count} {self.colour} {self.shape} {self.place}".strip()

    @property
    def plural(self) -> bool:
        return self.count != "1"

    @property
    def verb(self) -> str:
        return "are" if self.plural else "is"

    @property
    def noun(self) -> str:
        """ "red circles", without what is not known."""
        colour = "" if self.colour == UNSURE else self.colour
        return f"{colour} {plural(self.shape) if self.plural else thing(self.shape)}".strip()

    @property
    def where(self) -> str:
        return located(self.place)


@dataclass(frozen=True, slots=True)
class Scene:
    """What the eyes tell of a picture; ``light`` is UNCLEAR where they can tell nothing."""

    light: str
    background: str = "white"
    groups: tuple[Group, ...] = ()
    reads: str = ""
    motion: str = ""

    def __str__(self) -> str:
        if self.light == UNCLEAR:
            return UNCLEAR
        groups = ": " + ", ".join(map(str, self.groups)) if self.groups else ""
        reads = f"; reads {self.reads}" if self.reads else ""
        return f"{self.light} {self.background}{groups}{reads}{f'; {self.motion}' if self.motion else ''}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a question is about: a shape, a colour, both, or ("", "") anything."""

    colour: str = ""
    shape: str = ""

    @property
    def one(self) -> str:
        return f"{self.colour} {self.shape or 'thing'}".strip()

    @property
    def many(self) -> str:
        return f"{self.colour} {plural(self.shape)}".strip()

    def within(self, scene: Scene) -> list[Group]:
        return [g for g in scene.groups if self.colour in ("", g.colour) and self.shape in ("", g.shape)]

    def unsure(self, scene: Scene) -> bool:
        """Whether a thing that the eyes are not sure of may be one of those."""
        return any(_may_be(self.colour, g.colour) and _may_be(self.shape, g.shape) for g in scene.groups)


def _may_be(wanted: str, seen: str) -> bool:
    return wanted == "" or seen in (wanted, UNSURE)


def thing(shape: str) -> str:
    return "thing" if shape in ("", UNSURE) else shape


def plural(shape: str) -> str:
    return f"{thing(shape)}es" if shape == "cross" else f"{thing(shape)}s"


def located(place: str) -> str:
    """ "on the left", "at the top left", "" """
    if not place:
        return ""
    on = {"left": "on", "right": "on", "middle": "in"}
    return f"{on.get(place, 'at')} the {place}"


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def describe(scene: Scene) -> str:
    light = {"dark": "It is dark. ", "dim": "It is dim. "}.get(scene.light, "")
    reads = f" It reads {scene.reads}." if scene.reads else ""
    moves = f" It is {scene.motion}." if scene.motion.startswith("moving") else ""
    if not scene.groups:
        return f"{light}I see only {scene.background}.{reads}{moves}"
    shown = [f"{g.count} {g.noun} {g.where}".strip() for g in scene.groups[:3]] + ["more"] * (len(scene.groups) > 3)
    on = f" on {scene.background}" if len(scene.groups) == 1 and not scene.groups[0].place else ""
    return f"{light}I see {listed(shown)}{on}.{reads}{moves}"


def colour_of(scene: Scene, wanted: Wanted) -> str:
    found = wanted.within(scene)
    if not found:
        return _missing(scene, wanted, f"I see no {wanted.one}.")
    if any(g.colour == UNSURE for g in found):
        return "I can't tell which color."
    many = len(found) > 1 or found[0].plural
    colours = listed(list(dict.fromkeys(g.colour for g in found)))
    return f"The {wanted.many if many else wanted.one} {'are' if many else 'is'} {colours}."


def colour_of_it(scene: Scene) -> str:
    """Of the biggest thing in view."""
    if not scene.groups:
        return f"I see only {scene.background}."
    first = scene.groups[0]
    if first.colour == UNSURE:
        return "I can't tell which color."
    return f"{'They are' if first.plural else 'It is'} {first.colour}."


def shape_of_it(scene: Scene) -> str:
    if not scene.groups:
        return f"I see only {scene.background}."
    first = scene.groups[0]
    if first.shape == UNSURE:
        return "I can't tell which shape."
    return f"They are {plural(first.shape)}." if first.plural else f"It is a {first.shape}."


def how_many(scene: Scene, wanted: Wanted) -> str:
    found = wanted.within(scene)
    if not found:
        return _missing(scene, wanted, f"I see no {wanted.many}.")
    if len(found) == 1:
        return f"I see {found[0].count} {found[0].noun}."
    if any(g.count == "many" for g in found):
        return f"I see many {wanted.many}."
    total = sum(int(g.count) for g in found)
    parts = [f"{g.count} {g.noun}" for g in found]
    return f"{listed(parts)}, so {total} {wanted.many}."


def where_is(scene: Scene, wanted: Wanted) -> str:
    found = wanted.within(scene)
    if not found:
        return _missing(scene, wanted, f"I see no {wanted.one}.")
    said = [f"the {g.noun} {g.verb} {g.where or 'spread out'}" for g in found[:3]]
    return f"{listed(said).capitalize()}."


def where_is_it(scene: Scene) -> str:
    if not scene.groups:
        return f"I see only {scene.background}."
    first = scene.groups[0]
    return f"The {first.noun} {first.verb} {first.where or 'spread out'}."


def is_there(scene: Scene, wanted: Wanted) -> str:
    found = wanted.within(scene)
    if not found:
        return _missing(scene, wanted, f"No, I see no {wanted.one}.")
    return f"Yes, I see {found[0].count} {found[0].noun}."


def _missing(scene: Scene, wanted: Wanted, none: str) -> str:
    return CANNOT_TELL if wanted.unsure(scene) else none


def is_dark(scene: Scene) -> str:
    return {"dark": "Yes, it is dark.", "dim": "It is dim."}.get(scene.light, "No, it is light.")


def is_light(scene: Scene) -> str:
    return {"dark": "No, it is dark.", "dim": "It is dim."}.get(scene.light, "Yes, it is light.")


def is_moving(scene: Scene) -> str:
    if not scene.motion:
        return "I can't tell from one picture."
    return "No, it is still." if scene.motion == "still" else f"Yes, it is {scene.motion}."


def what_is_written(scene: Scene) -> str:
    return f"It reads {scene.reads}." if scene.reads else "I see no letters or numbers."


def background(scene: Scene) -> str:
    return f"The background is {scene.background}."


def still_there(before: Scene, now: Scene, wanted: Wanted | None) -> str:
    """Of ``wanted``, or of the biggest thing that was in view ``before``."""
    old = wanted.within(before) if wanted else list(before.groups)
    if not old:
        return f"I see no {wanted.one}." if wanted else f"I see only {now.background}."
    if any(g.shape == old[0].shape and g.colour == old[0].colour for g in now.groups):
        return f"Yes, the {old[0].noun} {old[0].verb} still there."
    return f"No, the {old[0].noun} {old[0].verb} gone."


def is_gone(still: str) -> str:
    """The answer to "is it gone?" from the one to "is it still there?"."""
    if still.startswith("Yes, "):
        return "No" + still[3:]
    return "Yes" + still[2:] if still.startswith("No, ") else still


def what_changed(before: Scene, now: Scene) -> str:
    said: list[str] = []
    if now.light != before.light:
        said.append(f"It is now {now.light}.")
    if now.background != before.background:
        said.append(f"The background is now {now.background}.")
    kinds = {(g.colour, g.shape): g for g in now.groups}
    for old in before.groups:
        new = kinds.pop((old.colour, old.shape), None)
        if new is None:
            said.append(f"The {old.noun} {old.verb} gone.")
        elif new.count != old.count:
            said.append(f"I now see {new.count} {new.noun}.")
        elif new.place != old.place:
            said.append(f"The {new.noun} {new.verb} now {new.where or 'spread out'}.")
    said += [f"I now see {new.count} {new.noun}." for new in kinds.values()]
    if now.reads != before.reads:
        said.append(f"It now reads {now.reads}." if now.reads else "The text is gone.")
    return " ".join(said) or "Nothing has changed."
