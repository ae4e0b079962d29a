"""Answers to questions about pictures, from their scene descriptions.

``looked`` handles the language model's call ("look color red circle"). The other functions answer one kind of question
each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.worker.models.nano.scene import COLOURS, MOST_COUNTED, SHAPES, UNSURE, Group, Scene

CANNOT_TELL = "I can't tell."
NO_PICTURE = "I have no picture. Turn on your camera."
NOTHING_CLEAR = "I can't make anything out."
BEYOND = "I can't tell. I only know colors, shapes, letters and numbers."
ONE_PICTURE = "I can't tell from one picture."


@dataclass(frozen=True, slots=True)
class Wanted:
    """The subject of a question: a shape, a colour, both, or neither (anything)."""

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
        """Return whether an uncertain thing in the scene may match."""
        return any(_may_be(self.colour, g.colour) and _may_be(self.shape, g.shape) for g in scene.groups)


def looked(call: str, scenes: Sequence[Scene]) -> str:
    """Return the answer to a call: a question kind, then optional colour and shape. ``scenes`` are oldest first."""
    kind, *about = call.split() or ["describe"]
    colours = [word for word in about if word in COLOURS]
    shapes = [word for word in about if word in SHAPES]
    wanted = Wanted("".join(colours[:1]), "".join(shapes[:1]))
    if not scenes:
        return NO_PICTURE
    if not scenes[-1].light:
        return NOTHING_CLEAR
    if kind in COMPARED:
        before = [scene for scene in scenes[-2:-1] if scene.light]
        return COMPARED[kind](before[0], scenes[-1], wanted) if before else ONE_PICTURE
    return ABOUT.get(kind, lambda scene, _: describe(scene))(scenes[-1], wanted)


def _may_be(wanted: str, seen: str) -> bool:
    return wanted == "" or seen in (wanted, UNSURE)


def thing(shape: str) -> str:
    return "thing" if shape in ("", UNSURE) else shape


def plural(shape: str) -> str:
    return f"{thing(shape)}es" if shape == "cross" else f"{thing(shape)}s"


def count_of(group: Group) -> str:
    return str(group.count) if group.count <= MOST_COUNTED else "many"


def noun_of(group: Group) -> str:
    """Return for example "red circles"; an unknown colour is left out."""
    colour = "" if group.colour == UNSURE else group.colour
    return f"{colour} {plural(group.shape) if group.count > 1 else thing(group.shape)}".strip()


def verb_of(group: Group) -> str:
    return "are" if group.count > 1 else "is"


def spelled(text: str) -> str:
    """Return text with spaces between its characters, so that a voice spells it; digits alone stay a number."""
    return text if text.isdigit() else " ".join(text)


def located(place: str) -> str:
    """Return for example "on the left" or "at the top left"; "" without a place."""
    if not place:
        return ""
    on = {"left": "on", "right": "on", "middle": "in"}
    return f"{on.get(place, 'at')} the {place}"


def _spot(group: Group) -> str:
    return located(group.place) or "spread out"


def _only(scene: Scene) -> str:
    """Describe a scene without things."""
    return f"I see only {scene.background}."


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def describe(scene: Scene) -> str:
    light = {"dark": "It is dark. ", "dim": "It is dim. "}.get(scene.light, "")
    reads = f" {what_is_written(scene)}" if scene.text else ""
    moves = f" It is {scene.motion}." if scene.motion.startswith("moving") else ""
    if not scene.groups:
        return f"{light}{_only(scene)}{reads}{moves}"
    shown = [f"{count_of(g)} {noun_of(g)} {located(g.place)}".strip() for g in scene.groups[:3]]
    shown += ["more"] * (len(scene.groups) > 3)
    on = f" on {scene.background}" if len(scene.groups) == 1 and not scene.groups[0].place else ""
    return f"{light}I see {listed(shown)}{on}.{reads}{moves}"


def colour_of(scene: Scene, wanted: Wanted) -> str:
    if wanted == Wanted():
        return colour_of_it(scene)
    found = wanted.within(scene)
    if not found:
        return _missing(scene, wanted, f"I see no {wanted.one}.")
    if any(g.colour == UNSURE for g in found):
        return "I can't tell which color."
    many = len(found) > 1 or found[0].count > 1
    colours = listed(list(dict.fromkeys(g.colour for g in found)))
    return f"The {wanted.many if many else wanted.one} {'are' if many else 'is'} {colours}."


def colour_of_it(scene: Scene) -> str:
    """Answer for the largest thing in view."""
    if not scene.groups:
        return _only(scene)
    first = scene.groups[0]
    if first.colour == UNSURE:
        return "I can't tell which color."
    return f"{'They are' if first.count > 1 else 'It is'} {first.colour}."


def shape_of_it(scene: Scene) -> str:
    if not scene.groups:
        return _only(scene)
    first = scene.groups[0]
    if first.shape == UNSURE:
        return "I can't tell which shape."
    return f"They are {plural(first.shape)}." if first.count > 1 else f"It is a {first.shape}."


def how_many(scene: Scene, wanted: Wanted) -> str:
    found = wanted.within(scene)
    if not found:
        return _missing(scene, wanted, f"I see no {wanted.many}.")
    if len(found) == 1:
        return f"I see {count_of(found[0])} {noun_of(found[0])}."
    if any(g.count > MOST_COUNTED for g in found):
        return f"I see many {wanted.many}."
    total = sum(g.count for g in found)
    parts = [f"{count_of(g)} {noun_of(g)}" for g in found]
    return f"{listed(parts)}, so {total} {wanted.many}."


def where_is(scene: Scene, wanted: Wanted) -> str:
    found = wanted.within(scene)[: 1 if wanted == Wanted() else 3]
    if not found:
        return _only(scene) if wanted == Wanted() else _missing(scene, wanted, f"I see no {wanted.one}.")
    said = [f"the {noun_of(g)} {verb_of(g)} {_spot(g)}" for g in found]
    return f"{listed(said).capitalize()}."


def is_there(scene: Scene, wanted: Wanted) -> str:
    found = wanted.within(scene)
    if not found:
        return _missing(scene, wanted, f"No, I see no {wanted.one}.")
    return f"Yes, I see {count_of(found[0])} {noun_of(found[0])}."


def _missing(scene: Scene, wanted: Wanted, none: str) -> str:
    return CANNOT_TELL if wanted.unsure(scene) else none


def is_dark(scene: Scene) -> str:
    return {"dark": "Yes, it is dark.", "dim": "It is dim."}.get(scene.light, "No, it is light.")


def is_light(scene: Scene) -> str:
    return {"dark": "No, it is dark.", "dim": "It is dim."}.get(scene.light, "Yes, it is light.")


def is_moving(scene: Scene) -> str:
    if not scene.motion:
        return ONE_PICTURE
    return "No, it is still." if scene.motion == "still" else f"Yes, it is {scene.motion}."


def what_is_written(scene: Scene) -> str:
    return f"It reads {spelled(scene.text)}." if scene.text else "I see no letters or numbers."


def background(scene: Scene) -> str:
    return f"The background is {scene.background}."


def still_there(before: Scene, now: Scene, wanted: Wanted) -> str:
    """Answer for the wanted things, or for the largest thing of the previous picture."""
    old = wanted.within(before)
    if not old:
        return _only(now) if wanted == Wanted() else f"I see no {wanted.one}."
    if any(g.shape == old[0].shape and g.colour == old[0].colour for g in now.groups):
        return f"Yes, the {noun_of(old[0])} {verb_of(old[0])} still there."
    return f"No, the {noun_of(old[0])} {verb_of(old[0])} gone."


def is_gone(still: str) -> str:
    """Turn the answer to "is it still there?" into the answer to "is it gone?"."""
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
            said.append(f"The {noun_of(old)} {verb_of(old)} gone.")
        elif new.count != old.count:
            said.append(f"I now see {count_of(new)} {noun_of(new)}.")
        elif new.place != old.place:
            said.append(f"The {noun_of(new)} {verb_of(new)} now {_spot(new)}.")
    said += [f"I now see {count_of(new)} {noun_of(new)}." for new in kinds.values()]
    if now.text != before.text:
        said.append(f"It now reads {spelled(now.text)}." if now.text else "The text is gone.")
    return " ".join(said) or "Nothing has changed."


ABOUT: dict[str, Callable[[Scene, Wanted], str]] = {
    "describe": lambda scene, _: describe(scene),
    "color": colour_of,
    "shape": lambda scene, _: shape_of_it(scene),
    "count": how_many,
    "where": where_is,
    "there": is_there,
    "dark": lambda scene, _: is_dark(scene),
    "bright": lambda scene, _: is_light(scene),
    "lighting": lambda scene, _: f"It is {scene.light}.",
    "moving": lambda scene, _: is_moving(scene),
    "read": lambda scene, _: what_is_written(scene),
    "background": lambda scene, _: background(scene),
    "beyond": lambda _, __: BEYOND,
}
"""Question kinds about one picture. Without a subject, "color" and "where" refer to the largest thing."""
COMPARED: dict[str, Callable[[Scene, Scene, Wanted], str]] = {
    "still": still_there,
    "gone": lambda before, now, wanted: is_gone(still_there(before, now, wanted)),
    "changed": lambda before, now, _: what_changed(before, now),
}
"""Question kinds about two pictures, the older first."""
