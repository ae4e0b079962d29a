"""Description of a picture: as data, and as one line of text in a fixed format.

The line is ASCII:

    scene  = "unclear" | light " " background [": " groups] ["; reads " TEXT] ["; " motion]
    groups = group (", " group)*, at most MOST_GROUPS, largest first; group = COUNT " " colour " " shape [" " place]
    COUNT  = 1 to 5 or "many"; an uncertain colour or shape is "?"; a place only if the members are close together
    TEXT   = 1 to 4 of A-Z 0-9; motion = "still" | "moving [left|right|up|down]", for turns of two or more pictures
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
"""Maximum distance of a group's members from its centre, relative to the picture's side, for the group to have a
place.
"""


@dataclass(frozen=True, slots=True)
class Thing:
    """A recognized shape. Centre and size are relative to the picture's width and height."""

    shape: str
    colour: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Group:
    """Things of the same colour and shape; ``place`` is "" if they are not close together."""

    count: int
    colour: str
    shape: str
    place: str = ""

    def __str__(self) -> str:
        count = str(self.count) if self.count <= MOST_COUNTED else "many"
        return " ".join(word for word in (count, self.colour, self.shape, self.place) if word)


@dataclass(frozen=True, slots=True)
class Scene:
    """A described picture; ``light`` is "" if nothing was recognized. ``str`` gives the line."""

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
    """Group things by colour and shape: at most MOST_GROUPS groups, largest area first."""
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
