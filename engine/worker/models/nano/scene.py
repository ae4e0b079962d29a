"""A picture as eyes can describe it: as data, and as one short line of a fixed form.

Pure data and rules: which things make a group, where a group is, what the line looks like. Knows no network and no
pixels. The line is ASCII:

    scene  = "unclear" | light " " background [": " groups] ["; reads " TEXT] ["; " motion]
    groups = group (", " group)*, at most MOST_GROUPS, biggest first; group = COUNT " " colour " " shape [" " place]
    COUNT  = 1 to 5 or "many"; a colour or shape that is not sure is "?"; a place only where the members are together
    TEXT   = 1 to 4 of A-Z 0-9; motion = "still" | "moving [left|right|up|down]", from two pictures of a turn on
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

COLOURS = ("black", "white", "gray", "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown")
SHAPES = ("circle", "square", "triangle", "star", "cross", "rectangle", "heart")
CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
PLACES = ("left", "right", "top", "bottom", "middle", "top left", "top right", "bottom left", "bottom right")
MOTIONS = ("still", "moving", "moving left", "moving right", "moving up", "moving down")
UNSURE = "?"
MOST_GROUPS, MOST_COUNTED, MOST_CHARACTERS = 4, 5, 4
TOGETHER = 0.25
"""The farthest that the members of a group with a place may be from their middle, in parts of the picture's side."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A shape that was found: its name and colour, its middle and size in parts of the picture's width and height."""

    shape: str
    colour: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Group:
    """Things of one colour and shape; ``place`` is "" where they are not together."""

    count: int
    colour: str
    shape: str
    place: str = ""

    def __str__(self) -> str:
        count = str(self.count) if self.count <= MOST_COUNTED else "many"
        return " ".join(word for word in (count, self.colour, self.shape, self.place) if word)


@dataclass(frozen=True, slots=True)
class Scene:
    """The things in view; without ``light`` nothing can be said. ``str`` is the line."""

    light: str = ""
    background: str = ""
    groups: tuple[Group, ...] = ()
    text: str = ""
    motion: str = ""

    def __str__(self) -> str:
        if not self.light:
            return "unclear"
        groups = f": {', '.join(map(str, self.groups))}" if self.groups else ""
        text = f"; reads {self.text}" if self.text else ""
        motion = f"; {self.motion}" if self.motion else ""
        return f"{self.light} {self.background}{groups}{text}{motion}"


def grouped(things: Iterable[Thing]) -> tuple[Group, ...]:
    """The groups that things make, the one that covers most first, at most MOST_GROUPS."""
    kinds: defaultdict[tuple[str, str], list[Thing]] = defaultdict(list)
    for thing in things:
        kinds[thing.colour, thing.shape].append(thing)
    biggest = sorted(kinds.items(), key=lambda kind: -sum(thing.width * thing.height for thing in kind[1]))
    return tuple(Group(len(some), *kind, _place(some)) for kind, some in biggest[:MOST_GROUPS])


def _place(things: Sequence[Thing]) -> str:
    x = sum(thing.x for thing in things) / len(things)
    y = sum(thing.y for thing in things) / len(things)
    if any(max(abs(thing.x - x), abs(thing.y - y)) > TOGETHER for thing in things):
        return ""
    row = "top" if y < 1 / 3 else "bottom" if y > 2 / 3 else ""
    column = "left" if x < 1 / 3 else "right" if x > 2 / 3 else ""
    return f"{row} {column}".strip() or "middle"
