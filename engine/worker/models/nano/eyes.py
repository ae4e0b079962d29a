"""nano's vision: describes a picture with two small ONNX networks.

The *finder* looks at the whole picture and returns the positions of things and the background colour. The *reader*
looks at one thing at a time, scaled to a fixed size, and returns its shape or character and its colour. Brightness and
legibility are computed from statistics (``picture``). Both networks were trained on drawn scenes (engine/training/nano)
and recognize neither faces nor everyday objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine.worker.models.nano import picture as pictures
from engine.worker.models.nano.inference import load, run
from engine.worker.models.nano.picture import Pixels, Small
from engine.worker.models.nano.scene import CHARACTERS, COLOURS, MOST_CHARACTERS, SHAPES, UNSURE, Scene, Thing, grouped

CELL = 8
"""Pixels of the small picture per cell of the finder's map."""
PIECE = 32
"""Side, in pixels, of the reader's input."""
AROUND = 1.35
"""Side of the reader's input relative to the thing in it."""
MOST_THINGS = 16
FOUND, NAMED, COLOURED, READ = 0.35, 0.6, 0.5, 0.6
"""Minimum probabilities that there is a thing, and of its shape, colour and character."""
OVERLAP = 0.35
"""Overlap of two finds above which they count as one."""
NOTHING = len(SHAPES) + len(CHARACTERS)
"""The reader's last class: no thing."""
THUMB = 32
"""Number of cells along the longer side of the thumbnail that motion detection compares."""
CHANGED, SOME, FAR = 0.09, 0.012, 0.06
"""Thresholds of motion: difference of a changed cell, share of changed cells, and distance moved by a thing."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the networks recognized in a picture, and a thumbnail of it."""

    scene: Scene
    things: tuple[Thing, ...]
    """Things and characters, with positions relative to the picture's sides."""
    thumb: Small
    """Thumbnail [h, w, 3]."""


@dataclass(frozen=True, slots=True)
class Find:
    """A detection in the padded square picture: centre and size in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def side(self) -> float:
        """Side of the square that is cut out for the reader."""
        return max(self.width, self.height, 6.0) * AROUND


class Eyes:
    """Recognizes the things and characters in pictures, by the finder and the reader.

    A picture takes a few milliseconds on one thread.
    """

    def __init__(self, folder: Path, threads: int = 1) -> None:
        self._finder = load(folder / "eyes_find.onnx", threads)
        self._reader = load(folder / "eyes_read.onnx", threads)

    def look(self, pixels: Pixels) -> Look:
        """Describe a picture, uint8 [height, width, 3] of any size."""
        if pixels.ndim != 3 or pixels.shape[2] != 3 or min(pixels.shape[:2]) < 2:
            return Look(Scene(), (), np.zeros((1, 1, 3), np.float32))
        small = pictures.small(pixels)
        brightness = pictures.brightest(small)
        if pictures.empty(pixels, small, brightness):
            return Look(Scene(), (), _thumb(small))
        seen = pictures.lifted(small, brightness)
        statistics = pictures.statistics(seen, brightness)
        square, top, left = pictures.square(seen)
        finds, background = self._find(square, statistics)
        things = [_within(thing, top, left, seen.shape) for thing in self._read(square, statistics, finds)]
        shapes = [thing for thing in things if thing.shape not in _LETTERS]
        text = reading(things, seen.shape[1] / seen.shape[0])
        return Look(Scene(pictures.light(brightness), background, grouped(shapes), text), tuple(things), _thumb(seen))

    def _find(self, square: Small, statistics: Small) -> tuple[list[Find], str]:
        half = np.ascontiguousarray(pictures.halved(square).transpose(2, 0, 1))
        fields, colours = run(self._finder, None, {"picture": half[None], "told": statistics[None]})
        return found(fields[0]), COLOURS[int(colours[0].argmax())]

    def _read(self, square: Small, statistics: Small, finds: Sequence[Find]) -> list[Thing]:
        """Return the recognized things, with positions relative to the square."""
        if not finds:
            return []
        pieces = np.stack([pictures.cut(square, find.x, find.y, find.side, PIECE) for find in finds])
        feeds = {
            "pieces": np.ascontiguousarray(pieces.transpose(0, 3, 1, 2)),
            "told": np.tile(statistics, (len(finds), 1)),
        }
        kinds, colours = (_shares(logits) for logits in run(self._reader, None, feeds))
        named = (_named(find, *row) for find, *row in zip(finds, kinds, colours, strict=True))
        return [thing for thing in named if thing is not None]


_LETTERS = frozenset({*CHARACTERS, f"{UNSURE}{UNSURE}"})
_UNREAD = f"{UNSURE}{UNSURE}"  # an unrecognized character


def found(fields: Small) -> list[Find]:
    """Return the finds in the finder's output.

    ``fields`` is [5, h, w]: the logit of a centre in each cell, its x and y offset, and the log width and height.
    """
    sure = 1 / (1 + np.exp(-fields[0]))
    wall = np.pad(sure, 1)
    high, wide = sure.shape
    around = np.max([wall[y : y + high, x : x + wide] for y in range(3) for x in range(3)], axis=0)
    rows, columns = np.nonzero((sure >= around) & (sure > FOUND))
    order = np.argsort(-sure[rows, columns])[: 2 * MOST_THINGS]
    finds: list[Find] = []
    for row, column in zip(rows[order], columns[order], strict=True):
        x, y, width, height = fields[1:, row, column]
        size = np.exp(np.clip([width, height], -2, 4)) * CELL
        find = Find((column + x) * CELL, (row + y) * CELL, *size)
        if all(_shared(find, other) < OVERLAP for other in finds):
            finds.append(find)
    return finds[:MOST_THINGS]


def _shared(one: Find, other: Find) -> float:
    """Return the intersection of two boxes, relative to the smaller one's area."""
    wide = _overlap(one.x, one.width, other.x, other.width)
    high = _overlap(one.y, one.height, other.y, other.height)
    return wide * high / min(one.width * one.height, other.width * other.height)


def _overlap(one: float, one_side: float, other: float, other_side: float) -> float:
    """Return the overlap of two intervals, each given by its centre and length."""
    ends = min(one + one_side / 2, other + other_side / 2), max(one - one_side / 2, other - other_side / 2)
    return max(0.0, ends[0] - ends[1])


def _named(find: Find, kinds: Small, colours: Small) -> Thing | None:
    """Return the recognized thing, or None if the reader sees none. Only shapes have a colour."""
    shape, letter, none = kinds[: len(SHAPES)].sum(), kinds[len(SHAPES) : NOTHING].sum(), kinds[NOTHING]
    if none >= max(shape, letter):
        return None
    colour = ""
    if letter > shape:
        best = int(kinds[len(SHAPES) : NOTHING].argmax())
        name = CHARACTERS[best] if kinds[len(SHAPES) + best] > READ else _UNREAD
    else:
        best = int(kinds[: len(SHAPES)].argmax())
        name = SHAPES[best] if kinds[best] > NAMED else UNSURE
        colour = COLOURS[int(colours.argmax())] if colours.max() > COLOURED else UNSURE
    x, y, width, height = (value / pictures.SIDE for value in (find.x, find.y, find.width, find.height))
    return Thing(name, colour, x, y, width, height)


def _within(thing: Thing, top: int, left: int, shape: Sequence[int]) -> Thing:
    """Convert a thing's position from the square to the picture inside it."""
    across, down = (pictures.SIDE / shape[axis] for axis in (1, 0))
    x, y = (thing.x - left / pictures.SIDE) * across, (thing.y - top / pictures.SIDE) * down
    return replace(thing, x=x, y=y, width=thing.width * across, height=thing.height * down)


def reading(things: Sequence[Thing], aspect: float = 1.0) -> str:
    """Return the characters on the line of the tallest one, left to right.

    Returns "" if there are too many, or if one is uncertain.
    """
    letters = sorted((thing for thing in things if thing.shape in _LETTERS), key=lambda thing: thing.x)
    if not letters:
        return ""
    tallest = max(letters, key=lambda thing: thing.height)
    line = [
        thing
        for thing in letters
        if thing.height > tallest.height * 0.55
        and abs(thing.y - tallest.y) < tallest.height * 0.5 + 0.3 * aspect * abs(thing.x - tallest.x)
    ]
    text = "".join(thing.shape for thing in line)
    return text if len(line) <= MOST_CHARACTERS and UNSURE not in text else ""


def motion(looks: Sequence[Look]) -> str:
    """Return "still", or "moving" with the direction, over the looks of one turn (oldest first); "" if unknown."""
    if len(looks) < 2 or not all(look.scene.light for look in looks):
        return ""
    if len({look.thumb.shape for look in looks}) > 1 or not any(_differ(looks[0], look) for look in looks[1:]):
        return "still" if len({look.thumb.shape for look in looks}) == 1 else ""
    return f"moving {_where(looks[0], looks[-1])}".strip()


def _differ(one: Look, other: Look) -> bool:
    """Return whether the change is more than noise, flicker or a shaking hand."""
    before, after = one.thumb, other.thumb * (np.median(one.thumb) + 0.05) / (np.median(other.thumb) + 0.05)
    changed = np.abs(after - before).max(2) > CHANGED
    return float(changed.mean()) > SOME and bool(_moves(one, other) or changed.mean() > 4 * SOME)


def _moves(one: Look, other: Look) -> list[tuple[float, float]]:
    """Return the displacements of the things that moved; each thing is matched with the nearest similar one."""
    went: list[tuple[float, float]] = []
    for thing in one.things:
        same = [that for that in other.things if (that.shape, that.colour) == (thing.shape, thing.colour)]
        if same:
            nearest = min(same, key=lambda that: abs(that.x - thing.x) + abs(that.y - thing.y))
            went.append((nearest.x - thing.x, nearest.y - thing.y))
    return [(x, y) for x, y in went if max(abs(x), abs(y)) > FAR]


def _where(one: Look, other: Look) -> str:
    """Return the direction of the largest displacement."""
    x, y = max(_moves(one, other), key=lambda went: max(abs(went[0]), abs(went[1])), default=(0.0, 0.0))
    if x == y == 0:
        return ""
    return ("right" if x > 0 else "left") if abs(x) >= abs(y) else ("down" if y > 0 else "up")


def _thumb(picture: Small) -> Small:
    height, width = picture.shape[:2]
    wide, high = (max(2, THUMB * side // max(width, height)) for side in (width, height))
    return pictures.made(picture, pictures.areas(height, 0, height, high), pictures.areas(width, 0, width, wide))


def _shares(logits: Small) -> Small:
    """Return the softmax probabilities [n, kinds]."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
