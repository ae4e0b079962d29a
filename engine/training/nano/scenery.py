"""Samples random scenes, separates held-out ones, and parses scene lines."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import replace

from engine.worker.models.nano.scene import COLOURS, MOST_COUNTED, MOTIONS, PLACES, SHAPES, UNSURE, Group, Scene

COUNTS = range(1, MOST_COUNTED + 2)


def sample_scene(rng: random.Random, frames: int = 1) -> Scene:
    """Return a random scene; with ``frames`` above 1 it may have motion."""
    if rng.random() < 0.05:
        return Scene()
    light = rng.choices(("light", "dim", "dark"), (6, 2, 2))[0]
    count = rng.choices((0, 1, 2, 3, 4), (10, 38, 34, 13, 5))[0]
    groups: list[Group] = []
    while len(groups) < count:
        group = sample_group(rng)
        if all((g.colour, g.shape) != (group.colour, group.shape) for g in groups):
            groups.append(group)
    reads = sample_reads(rng) if rng.random() < (0.5 if not groups else 0.2) else ""
    return Scene(light, rng.choice(COLOURS), tuple(groups), reads, rng.choice(MOTIONS) if frames > 1 else "")


def for_training(make: Callable[[], Scene]) -> Scene:
    """Draw scenes until one is not held out."""
    while is_held_out(scene := make()):
        pass
    return scene


def is_held_out(scene: Scene) -> bool:
    """Whether training must not show the scene: one in sixteen of those that contain something."""
    return bool(scene.groups or scene.text) and zlib.crc32(str(scene).encode()) % 16 == 0


def sample_group(rng: random.Random) -> Group:
    count = rng.choices(COUNTS, (50, 18, 10, 8, 7, 7))[0]
    colour = UNSURE if rng.random() < 0.05 else rng.choice(COLOURS)
    shape = UNSURE if rng.random() < 0.05 else rng.choice(SHAPES)
    spread = count > 1 and rng.random() < 0.5
    return Group(count, colour, shape, "" if spread else rng.choice(PLACES))


def sample_reads(rng: random.Random) -> str:
    symbols = rng.choice(("0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))
    return "".join(rng.choice(symbols) for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))))


def changed(rng: random.Random, scene: Scene) -> Scene:
    """Return the scene a little later: one or two things are changed, or none."""
    if not scene.light:
        return sample_scene(rng)
    for _ in range(rng.choices((0, 1, 2), (2, 6, 2))[0]):
        scene = _edited(rng, scene)
    return scene


def _edited(rng: random.Random, scene: Scene) -> Scene:
    groups = list(scene.groups)
    at = rng.randrange(len(groups)) if groups else 0
    match rng.choice(("gone", "gone", "new", "place", "count", "light", "background", "reads")):
        case "gone" if groups:
            groups.pop(at)
        case "place" if groups:
            groups[at] = replace(groups[at], place=rng.choice([p for p in PLACES if p != groups[at].place]))
        case "count" if groups:
            count = rng.choice([c for c in COUNTS if c != groups[at].count])
            groups[at] = replace(groups[at], count=count, place=groups[at].place or rng.choice(PLACES))
        case "light":
            return replace(scene, light=rng.choice([x for x in ("light", "dim", "dark") if x != scene.light]))
        case "background":
            return replace(scene, background=rng.choice([c for c in COLOURS if c != scene.background]))
        case "reads":
            return replace(scene, text="" if scene.text else sample_reads(rng))
        case _:
            group = sample_group(rng)
            if len(groups) < 4 and all((g.colour, g.shape) != (group.colour, group.shape) for g in groups):
                groups.insert(rng.randrange(len(groups) + 1), group)
    return replace(scene, groups=tuple(groups))


def parsed(line: str) -> Scene:
    """Parse a scene line (format: ``engine/worker/models/nano/scene.py``)."""
    if line == "unclear":
        return Scene()
    first, *more = line.split("; ")
    reads = next((part.removeprefix("reads ") for part in more if part.startswith("reads ")), "")
    motion = next((part for part in more if part in MOTIONS), "")
    light_and_ground, _, things = first.partition(": ")
    light, ground = light_and_ground.split(" ")
    return Scene(light, ground, tuple(_group(thing) for thing in things.split(", ") if thing), reads, motion)


def _group(text: str) -> Group:
    count, colour, shape, *place = text.split(" ")
    return Group(MOST_COUNTED + 1 if count == "many" else int(count), colour, shape, " ".join(place))
