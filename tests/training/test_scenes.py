"""The drawn scenes of the eyes: seeded, true to what they say, and held-out ones that share nothing with training."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.training.nano import backdrops, fonts
from engine.training.nano.eval_eyes import nearest
from engine.training.nano.eyes import Finder, Reader, export
from engine.training.nano.fonts import BUILT_IN
from engine.training.nano.gallery import KINDS, Gallery, draw, nothing
from engine.training.nano.outlines import OUTLINES, perspective, stretched
from engine.training.nano.scenes import ALIKE, IN_LITTLE_LIGHT, SIDE, Artist, Example
from engine.training.nano.train_eyes import finder_batches, finder_loss, reader_batches, reader_loss, target, train
from engine.worker.models.nano import picture as pictures
from engine.worker.models.nano.eyes import NOTHING, Eyes, Look, found
from engine.worker.models.nano.scene import CHARACTERS, COLOURS, SHAPES, Scene


def examples(seed: int, count: int, held_out: bool = False) -> list[Example]:
    artist = Artist(seed, [BUILT_IN], held_out)
    return [artist.example() for _ in range(count)]


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return draw(Artist(3, [BUILT_IN]), 24, SIDE, tmp_path_factory.mktemp("gallery") / "scenes")


def test_the_same_seed_draws_the_same_scenes() -> None:
    one, same, other = ([(e.scene, e.pixels.tobytes()) for e in examples(seed, 6)] for seed in (1, 1, 2))
    assert one == same
    assert not any(a == b for a, b in zip(one, other, strict=True))


def test_held_out_scenes_share_no_surface_and_no_typeface_with_training() -> None:
    assert not {*backdrops.LEARNED} & {*backdrops.HELD_OUT}
    assert not {*fonts.learned()} & {*fonts.held_out()}
    assert fonts.held_out(Path("/nowhere")) == [BUILT_IN]


def test_typefaces_are_told_apart_by_their_names(tmp_path: Path) -> None:
    for name in ("Lato-Bold", "Lato-Hairline", "DejaVuSans", "Lobster", "Roboto-Regular", "OpenSans-Light"):
        (tmp_path / f"{name}.ttf").touch()
    assert [path.stem for path in fonts.learned(tmp_path)] == ["DejaVuSans"]
    assert [path.stem for path in fonts.held_out(tmp_path)[1:]] == ["Lato-Bold", "Roboto-Regular"]


@pytest.mark.parametrize("held_out", [False, True])
def test_the_truth_about_a_scene_holds(held_out: bool) -> None:
    for example in examples(4, 60, held_out):
        height, width = example.pixels.shape[:2]
        assert example.pixels.dtype == np.uint8
        assert max(height, width) == SIDE
        assert all(one.name in SHAPES for one in example.shapes)
        assert all(one.name in CHARACTERS for one in example.letters)
        assert not any({one.colour, example.background} in (*ALIKE, {example.background}) for one in example.shapes)
        if example.light != "light":
            assert {example.background, *(one.colour for one in example.shapes)} <= {*IN_LITTLE_LIGHT}
        for one in (*example.shapes, *example.letters):
            x, y, wide, high = one.box
            assert -wide / 4 < x - wide / 2 < x + wide / 2 < width + wide / 4, "a corner may stick out"
            assert -high / 4 < y - high / 2 < y + high / 2 < height + high / 4
        left_to_right = [letter.box[0] for letter in example.letters]
        assert all(one < other for one, other in pairwise(left_to_right))


def test_what_is_drawn_is_there_and_has_its_colour() -> None:
    seen = 0
    for example in examples(5, 100):
        for one in example.shapes:
            if example.light != "light" or one.name in ("star", "cross"):
                continue
            x, y, _, _ = one.box
            red, green, blue = (float(value) for value in example.pixels[int(y), int(x)])
            strongest = {"red": red, "green": green, "blue": blue}.get(one.colour)
            if strongest is not None:
                assert strongest == max(red, green, blue), example.scene
                seen += 1
    assert seen > 5


def test_light_is_told_by_statistics() -> None:
    for held_out in (False, True):
        drawn = examples(6, 100, held_out)
        right = [pictures.light(pictures.brightest(pictures.small(one.pixels))) == one.light for one in drawn]
        assert np.mean(right) >= 0.97


def test_a_quadrilateral_and_its_perspective_are_inverse() -> None:
    corners = np.array([[10.0, 20], [110, 30], [120, 90], [5, 80]])
    a, b, c, d, e, f, g, h = perspective(corners, (50, 40))
    for (x, y), wanted in zip(corners, ((0, 0), (50, 0), (50, 40), (0, 40)), strict=True):
        scale = g * x + h * y + 1
        assert ((a * x + b * y + c) / scale, (d * x + e * y + f) / scale) == pytest.approx(wanted)
    assert np.allclose(stretched(np.array([[0.0, 0], [1, 1]]), corners), corners[[0, 2]])


def test_every_outline_fills_its_square() -> None:
    for name in SHAPES:
        outline = OUTLINES[name]
        assert np.allclose(outline.min(0), 0)
        assert np.allclose(outline.max(0), 1)


def test_a_gallery_is_drawn_once(gallery: Gallery, tmp_path: Path) -> None:
    one = draw(Artist(3, [BUILT_IN]), 3, SIDE, tmp_path)
    again = draw(Artist(99, [BUILT_IN]), 3, SIDE, tmp_path)
    assert np.array_equal(one.pictures, again.pictures)
    assert np.array_equal(one.pictures, gallery.pictures[:3])
    assert [len(things) for things in one.things] == [len(things) for things in gallery.things[:3]]


def test_the_map_that_is_taught_is_the_map_that_is_read(gallery: Gallery) -> None:
    for things in gallery.things:
        wanted = target(things)
        sure = np.clip(wanted[:1], 1e-4, 1 - 1e-4)
        finds = found(np.concatenate((np.log(sure / (1 - sure)), wanted[1:5])))
        assert len(finds) == len(things)
        for x, y, width, height, *_ in things:
            assert any(
                np.allclose((find.x, find.y, find.width, find.height), (x, y, width, height), atol=0.01)
                for find in finds
            )
    assert found(np.full((5, 32, 32), -9, np.float32)) == []


def test_nothing_is_where_no_thing_is(gallery: Gallery) -> None:
    rng, seen = np.random.default_rng(0), 0
    for _ in range(300):
        number = int(rng.integers(len(gallery)))
        place = nothing(rng, gallery, number)
        if place is not None:
            x, y, side = place
            fits = [
                np.hypot(x - thing[0], y - thing[1]) < side * 0.2 and 0.6 < side / max(thing[2], thing[3]) < 2
                for thing in gallery.things[number]
            ]
            seen += not any(fits)
            assert not any(fits)
    assert seen > 100


class Clock:
    """Time that goes by with each look at it: 30 steps of training are 2 s on every machine."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        self._looks += 1
        return self._looks / 30


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the exporter's own
def test_a_few_steps_teach_something_and_the_export_computes_the_same(
    gallery: Gallery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.training.nano.train_eyes.time", Clock())
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    finder, reader = Finder(), Reader()
    batches = finder_batches(rng, gallery, 8)
    batch = next(batches)
    before = finder_loss(finder.train(), batch).item()
    trained = train(finder, finder_loss, batches, 2.0, 1e-3)
    assert finder_loss(finder.train(), batch).item() < before
    pieces = next(reader_batches(rng, gallery, gallery, [], 16))
    assert np.isfinite(reader_loss(reader, pieces).item())
    assert {*pieces[2].tolist()} <= {*range(NOTHING + 1)}
    assert isinstance(trained, Finder)
    export(trained, reader, tmp_path)
    eyes = Eyes(tmp_path)
    with torch.no_grad():
        wanted = [t.numpy() for t in (*trained.eval()(batch[0], batch[1]), *reader.eval()(*pieces[:2]))]
    mapped = eyes._finder.run(None, {"picture": batch[0].numpy(), "told": batch[1].numpy()})
    read = eyes._reader.run(None, {"pieces": pieces[0].numpy(), "told": pieces[1].numpy()})
    for one, other in zip((*mapped, *read), wanted, strict=True):
        assert np.abs(np.asarray(one) - other).max() < 0.05, "weights are stored in half precision"


def test_what_was_drawn_is_looked_for_where_it_lies() -> None:
    example = next(one for one in examples(8, 40) if one.shapes)
    truth = example.scene
    assert truth.background in COLOURS
    assert all(group.shape in KINDS for group in truth.groups)
    height, width = example.pixels.shape[:2]
    assert nearest(example.shapes[0], Look(Scene(), (), np.zeros((1, 1, 3), np.float32)).things, width, height) is None
