"""The eyes of nano: what they tell of scenes that training never had, of pictures that show nothing, and of motion."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from engine.chunk import Chunk, Text, Usage
from engine.core import AudioPart, ImagePart, Message, Request, Sampling, TextPart
from engine.errors import WeightsError
from engine.training.nano.eval_eyes import BARS, Score, judge, measure
from engine.training.nano.eval_thinker import serve
from engine.training.nano.fonts import BUILT_IN
from engine.training.nano.scenes import Artist, Example
from engine.worker.models.nano import picture as pictures
from engine.worker.models.nano.eyes import Eyes, Look, motion, reading
from engine.worker.models.nano.messages import joined
from engine.worker.models.nano.scene import COLOURS, SHAPES, Group, Scene, Thing, grouped
from engine.worker.models.nano.seeing import NO_PICTURE
from engine.worker.models.nano.sight import Sight
from engine.worker.models.nano.thinker import WEIGHTS, Thinker
from engine.worker.models.nano.tokens import user_ids
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

SEED, EXAMPLES = 7, 160
WHITE, RED, BLUE = (250, 250, 250), (220, 30, 30), (40, 70, 220)
COLOUR, SHAPE = "|".join(COLOURS), "|".join(SHAPES)
PLACE = "(top |bottom )?(left|right)|top|bottom|middle"
GROUP = rf"([1-5]|many) ({COLOUR}|\?) ({SHAPE}|\?)( ({PLACE}))?"
MOTION = "still|moving( (left|right|up|down))?"
LINE = re.compile(
    rf"unclear|(dark|dim|light) ({COLOUR})(: {GROUP}(, {GROUP}){{0,3}})?(; reads [A-Z0-9]{{1,4}})?(; ({MOTION}))?"
)


@pytest.fixture(scope="module")
def eyes() -> Eyes:
    return Eyes(WEIGHTS)


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    """Held-out scenes, in the typeface that is there on every machine."""
    artist = Artist(SEED, [BUILT_IN], held_out=True)
    return [artist.example() for _ in range(EXAMPLES)]


def disc(x: float, y: float = 120, radius: int = 30, size: tuple[int, int] = (320, 240)) -> np.ndarray:
    """A red disc on a white wall: uint8 [240, 320, 3]."""
    image = Image.new("RGB", size, WHITE)
    ImageDraw.Draw(image).ellipse((x - radius, y - radius, x + radius, y + radius), RED)
    return np.asarray(image)


def noisy(pixels: np.ndarray, seed: int) -> np.ndarray:
    grain = np.random.default_rng(seed).normal(0, 5, pixels.shape)
    return np.clip(pixels + grain, 0, 255).astype(np.uint8)


class TestFigures:
    """The bars, on a few scenes; ``eval_eyes`` measures on many, and in more typefaces."""

    def test_the_bars_hold_on_scenes_that_training_never_had(self, eyes: Eyes, examples: list[Example]) -> None:
        score = measure(eyes, iter(examples))
        assert min(score.all[row] for row in BARS) > 50
        assert {row: score.rate(row) for row in BARS if score.rate(row) < BARS[row]} == {}
        assert score.rate("light") > 0.97

    def test_looking_at_another_scene_fails_them(self, eyes: Eyes, examples: list[Example]) -> None:
        score = Score()
        for example, other in pairwise(examples[:41]):
            judge(score, example, eyes.look(other.pixels))
        assert all(score.rate(row) < 0.5 for row in BARS)

    def test_another_light_of_the_lamp_is_noticed(self, eyes: Eyes, examples: list[Example]) -> None:
        """Red and blue changed places: shapes stay what they are, colours do not."""
        score = Score()
        for example in examples[:40]:
            judge(score, example, eyes.look(np.ascontiguousarray(example.pixels[:, :, ::-1])))
        assert score.rate("shapes") > 0.8
        assert score.rate("colours") < 0.7

    def test_what_they_say_is_what_the_thinker_reads(self, eyes: Eyes, examples: list[Example]) -> None:
        for example in examples[::4]:
            assert LINE.fullmatch(str(example.scene))
            assert LINE.fullmatch(str(eyes.look(example.pixels).scene))

    @pytest.mark.bench
    def test_a_look_takes_milliseconds(self, eyes: Eyes, examples: list[Example]) -> None:
        frame = np.kron(examples[0].pixels, np.ones((3, 3, 1), np.uint8))[:480, :640]
        times: list[float] = []
        for _ in range(30):
            start = time.perf_counter()
            eyes.look(frame)
            times.append(time.perf_counter() - start)
        assert float(np.median(times)) < 0.015


@pytest.mark.parametrize(
    ("scene", "line"),
    [
        (Scene(), "unclear"),
        (Scene("dim", "green"), "dim green"),
        (
            Scene("light", "white", (Group(2, "red", "circle", "left"), Group(7, "?", "star")), "A7", "still"),
            "light white: 2 red circle left, many ? star; reads A7; still",
        ),
    ],
)
def test_a_scene_is_one_line(scene: Scene, line: str) -> None:
    assert str(scene) == line
    assert LINE.fullmatch(line)


def thing(x: float, y: float, side: float = 0.1, shape: str = "circle", colour: str = "red") -> Thing:
    return Thing(shape, colour, x, y, side, side)


def test_groups_are_the_largest_first_and_have_a_place_where_they_are_together() -> None:
    things = [thing(0.1, 0.1), thing(0.9, 0.9), thing(0.8, 0.2, 0.5, "star"), thing(0.75, 0.1, 0.01, "cross")]
    assert [str(group) for group in grouped(things)] == [
        "1 red star top right", "2 red circle", "1 red cross top right",
    ]  # fmt: skip
    assert str(grouped([thing(0.5, 0.5)])[0]) == "1 red circle middle"
    assert len(grouped(thing(0.5, 0.5, 0.1, shape) for shape in SHAPES)) == 4


def test_text_is_read_from_left_to_right_or_not_at_all() -> None:
    row = [thing(0.6, 0.52, shape="7"), thing(0.4, 0.5, shape="A")]
    assert reading(row) == "A7"
    assert reading([*row, thing(0.1, 0.9, 0.03, "B")]) == "A7"
    assert reading([*row, thing(0.7, 0.5, shape="??")]) == ""
    assert reading([thing(0.1 + i / 10, 0.5, shape="X") for i in range(5)]) == ""
    assert reading([thing(0.5, 0.5, shape="star")]) == ""


class TestNothingToTell:
    @pytest.mark.parametrize(
        "pixels",
        [
            np.zeros((240, 320, 3), np.uint8),
            np.full((240, 320, 3), 255, np.uint8),
            np.full((240, 320, 3), 6, np.uint8),
            np.full((1, 1, 3), 120, np.uint8),
            np.zeros((0, 5, 3), np.uint8),
            np.full((7, 900, 3), 120, np.uint8),
            np.full((240, 320), 120, np.uint8),
            np.random.default_rng(0).integers(0, 256, (240, 320, 3), np.uint8),
        ],
        ids=["black", "blown out", "covered", "one pixel", "no pixel", "a ribbon", "no colours", "noise"],
    )
    def test_is_unclear(self, eyes: Eyes, pixels: np.ndarray) -> None:
        assert str(eyes.look(pixels).scene) == "unclear"

    def test_a_bare_wall_is_a_wall(self, eyes: Eyes) -> None:
        """The negative control."""
        assert str(eyes.look(noisy(np.full((240, 320, 3), WHITE, np.uint8), 1)).scene) == "light white"
        assert str(eyes.look(noisy(np.full((240, 320, 3), BLUE, np.uint8), 1)).scene) == "light blue"


@pytest.mark.parametrize("times", [1, 2, 5, 13])
def test_a_picture_of_any_size_shows_the_same(eyes: Eyes, times: int) -> None:
    large = np.kron(disc(80), np.ones((times, times, 1), np.uint8))
    assert str(eyes.look(large).scene) == "light white: 1 red circle left"


@pytest.mark.parametrize(("turns", "place"), [(0, "left"), (1, "bottom"), (2, "right"), (3, "top")])
def test_a_picture_may_be_turned(eyes: Eyes, turns: int, place: str) -> None:
    turned = np.rot90(disc(80), turns)
    assert str(eyes.look(turned).scene) == f"light white: 1 red circle {place}"


class TestPicture:
    def test_it_is_made_small_by_area(self) -> None:
        pixels = np.random.default_rng(1).integers(0, 256, (576, 768, 3), np.uint8)
        wanted = pixels.reshape(192, 3, 256, 3, 3).mean((1, 3)) / 255
        assert np.allclose(pictures.small(pixels), wanted, atol=1e-5)
        whole = pixels[:320, :320].reshape(64, 5, 64, 5, 3).mean((1, 3)) / 255  # 320 to 256 pixels: 5 become 4
        small = pictures.small(pixels[:320, :320]).reshape(64, 4, 64, 4, 3).mean((1, 3))
        assert np.allclose(small, whole, atol=1e-5)

    @pytest.mark.parametrize("shape", [(2, 2), (17, 400), (480, 640), (641, 479), (3000, 4000), (2, 5000)])
    def test_every_size_keeps_an_even_gray(self, shape: tuple[int, int]) -> None:
        small = pictures.small(np.full((*shape, 3), 51, np.uint8))
        assert max(small.shape) == pictures.SIDE
        assert np.allclose(small, 0.2, atol=1e-4)

    @pytest.mark.parametrize(("size", "start", "end"), [(10, -3, 13), (10, -1, 3), (256, 17.3, 90.1), (5, 7, 9)])
    def test_weights_are_of_the_whole(self, size: int, start: float, end: float) -> None:
        assert np.allclose(pictures.areas(size, start, end, 32).sum(1), 1)

    def test_a_piece_is_cut_where_it_is(self) -> None:
        picture = np.zeros((256, 256, 3), np.float32)
        picture[64:128, 32:96] = 1
        assert pictures.cut(picture, 64, 96, 64, 32).min() == 1
        assert pictures.cut(picture, 64, 96, 128, 32).mean() == pytest.approx(0.25)
        assert pictures.cut(picture, 200, 200, 60, 32).max() == 0
        assert pictures.cut(picture, -500, 96, 60, 32).shape == (32, 32, 3)

    def test_its_name_is_its_content(self) -> None:
        assert pictures.name(disc(80)) == pictures.name(disc(80).copy())
        assert pictures.name(disc(80)) != pictures.name(disc(81))
        assert pictures.name(np.zeros((2, 8, 3), np.uint8)) != pictures.name(np.zeros((8, 2, 3), np.uint8))


class TestMotion:
    @pytest.mark.parametrize(
        ("ends", "said"),
        [
            (((80, 120), (220, 120)), "moving right"),
            (((220, 120), (80, 120)), "moving left"),
            (((160, 60), (160, 180)), "moving down"),
            (((160, 180), (160, 60)), "moving up"),
            (((160, 120), (160, 120)), "still"),
            (((160, 120), (163, 121)), "still"),  # a trembling hand
        ],
    )
    def test_where_a_thing_goes(self, eyes: Eyes, ends: Sequence[tuple[int, int]], said: str) -> None:
        assert motion([eyes.look(noisy(disc(*end), n)) for n, end in enumerate(ends)]) == said

    def test_a_flicker_of_the_light_is_no_motion(self, eyes: Eyes) -> None:
        dimmer = (noisy(disc(120), 2) * 0.8).astype(np.uint8)
        assert motion([eyes.look(noisy(disc(120), 1)), eyes.look(dimmer)]) == "still"

    def test_what_comes_and_goes_moves_somewhere(self, eyes: Eyes) -> None:
        wall = np.full((240, 320, 3), WHITE, np.uint8)
        assert motion([eyes.look(wall), eyes.look(disc(150, radius=50))]) == "moving"

    def test_it_takes_two_clear_pictures(self, eyes: Eyes) -> None:
        assert motion([eyes.look(disc(80))]) == ""
        assert motion([eyes.look(disc(80)), eyes.look(np.zeros((9, 9, 3), np.uint8))]) == ""
        assert motion([eyes.look(disc(80)), eyes.look(np.rot90(disc(80)))]) == ""


class Counting:
    """Eyes that count how often they look."""

    def __init__(self, eyes: Eyes) -> None:
        self._eyes, self.looks = eyes, 0

    def look(self, pixels: np.ndarray) -> Look:
        self.looks += 1
        return self._eyes.look(pixels)


def shown(*pixels: np.ndarray, text: str = "") -> Message:
    return Message("user", (*map(ImagePart, pixels), *((TextPart(text),) if text else ())))


def said(text: str) -> Message:
    return Message("assistant", (TextPart(text),))


class TestSight:
    def test_a_picture_is_looked_at_once_in_a_session(self, eyes: Eyes) -> None:
        counting: Any = Counting(eyes)
        sight = Sight(counting)
        first = (shown(disc(80), text="what is it"),)
        then = (*first, said("A circle."), shown(disc(240), text="and now"))
        assert list(map(str, sight.scenes("s", first))) == ["light white: 1 red circle left"]
        assert list(map(str, sight.scenes("s", then))) == [
            "light white: 1 red circle left", "None", "light white: 1 red circle right",
        ]  # fmt: skip
        assert counting.looks == 2
        sight.scenes("another", then)
        assert counting.looks == 4

    async def test_what_was_shown_while_the_user_spoke_costs_the_answer_no_look(self, eyes: Eyes) -> None:
        counting: Any = Counting(eyes)
        thinker = Thinker(StageConfig(), sight=Sight(counting))
        frames = [shown(disc(x)) for x in (80, 160, 240)]
        for frame in frames:
            await thinker.prepare(Request(id="r", session="s", messages=(frame,)))
        assert counting.looks == 3
        turn = Message("user", tuple(part for frame in frames for part in frame.parts))
        (scene,) = await thinker._scenes("s", (turn,))
        assert (str(scene), counting.looks) == ("light white: 1 red circle right; moving right", 3)

    def test_the_newest_picture_of_a_turn_is_told_and_how_it_moves(self, eyes: Eyes) -> None:
        scenes = Sight(eyes).scenes("s", (shown(disc(80), disc(240), text="what moves"),))
        assert list(map(str, scenes)) == ["light white: 1 red circle right; moving right"]

    def test_looks_are_bounded(self, eyes: Eyes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("engine.worker.models.nano.sight.REMEMBERED", 2)
        sight = Sight(eyes)
        sight.scenes("s", [shown(disc(x)) for x in (60, 100, 140, 180)])
        assert len(sight._looks) == 2

    def test_bare_pictures_belong_to_what_is_said_next(self) -> None:
        one, two = disc(80), disc(240)
        question = shown(two, text="what is it")
        assert joined((shown(one), question)) == (shown(one, two, text="what is it"),)
        assert joined((shown(one), said("A circle."), question)) == (shown(one), said("A circle."), question)
        assert joined((shown(one), shown(two))) == (shown(one, two),)
        assert joined((question, said("A circle."))) == (question, said("A circle."))


def request(*messages: Message, **options: Any) -> Request:
    return Request(id="r", session="s", messages=messages, sampling=Sampling(greedy=True), dump=True, **options)


@pytest.fixture(scope="module")
def stage() -> Thinker:
    return Thinker(StageConfig(slots=4))


def prompt_of(stage: Thinker, asked: Request, heard: str | None = None) -> list[int]:
    chunks = asyncio.run(serve(stage, [asked], heard))[0]
    return next(list(chunk.prompt_ids) for chunk in chunks if isinstance(chunk, Usage))


def answer_of(stage: Thinker, asked: Request, heard: str | None = None) -> str:
    chunks = asyncio.run(serve(stage, [asked], heard))[0]
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))


QUESTIONS = {
    "What do you see?": "I see 1 red circle on the left.",
    "Look at this.": "I see 1 red circle on the left.",
    "Which color is it?": "It is red.",
    "How many circles are there?": "I see 1 red circle.",
    "How many stars do you see?": "I see no stars.",
    "Where is the circle?": "The red circle is on the left.",
    "What shape is it?": "It is a circle.",
    "Is it dark in here?": "No, it is light.",
}


class TestInTheAnswer:
    SEEN = "I see 1 red circle on the left."

    @pytest.mark.parametrize("question", QUESTIONS)
    def test_who_asks_about_a_picture_is_told_what_it_shows(self, stage: Thinker, question: str) -> None:
        assert answer_of(stage, request(shown(disc(80), text=question))) == QUESTIONS[question]

    def test_without_a_picture_it_says_so(self, stage: Thinker) -> None:
        asked = request(Message("user", (TextPart("What do you see?"),)))
        assert answer_of(stage, asked) == NO_PICTURE

    def test_follow_ups_are_about_the_last_picture(self, stage: Thinker) -> None:
        first = request(shown(disc(80), text="How many circles do you see?"))
        turns = (*first.messages, said(answer_of(stage, first)))
        for question, answer in (
            ("And where is it?", "The red circle is on the left."),
            ("What about the stars?", "I see no stars."),
        ):
            assert answer_of(stage, request(*turns, Message("user", (TextPart(question),)))) == answer
        moved = shown(disc(240), text="What has changed?")
        assert answer_of(stage, request(*turns, moved)) == "The red circle is now on the right."

    def test_a_question_about_something_else_is_answered(self, stage: Thinker) -> None:
        assert answer_of(stage, request(shown(disc(80), text="What is twelve plus thirty?"))).endswith("42.")

    def test_a_picture_without_a_question_is_told(self, stage: Thinker) -> None:
        assert answer_of(stage, request(shown(disc(80)))) == self.SEEN

    def test_a_picture_and_speech(self, stage: Thinker) -> None:
        spoken = Message("user", (AudioPart(np.zeros(1600, np.int16)), ImagePart(disc(80))))
        assert answer_of(stage, request(spoken), "what do you see") == self.SEEN
        live = request(shown(disc(80)), live=True)
        assert answer_of(stage, live, "what do you see") == self.SEEN

    def test_the_conversation_goes_on_behind_it(self, stage: Thinker) -> None:
        turns = (shown(disc(80), text="What do you see?"), said(self.SEEN))
        assert answer_of(stage, request(*turns, shown(disc(240), text="And what do you see now?"))) == (
            "I see 1 red circle on the right."
        )
        later = Message("user", (TextPart("Say good morning"),))
        assert answer_of(stage, request(*turns, later)) == "good morning"

    def test_only_the_pictures_mark_is_in_the_prompt(self, stage: Thinker) -> None:
        assert prompt_of(stage, request(shown(disc(80), text="What is it?"))) == user_ids("What is it?", picture=True)

    def test_a_request_may_be_given_up_while_its_picture_is_looked_at(self, stage: Thinker) -> None:
        async def given_up() -> None:
            pace: Any = SimpleNamespace()
            req = StageRequest(request(shown(disc(33), text="?")), 0, pace)
            stage.open(req)
            rows = stage.adapt(req, _silence())
            task = asyncio.create_task(anext(rows))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await rows.aclose()
            assert not req.pending

        asyncio.run(given_up())
        assert answer_of(stage, request(shown(disc(80)))) == self.SEEN


async def _silence() -> AsyncGenerator[Chunk]:
    for chunk in list[Chunk]():
        yield chunk


def test_missing_or_damaged_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"eyes_find\.onnx"):
        Eyes(tmp_path)
    (tmp_path / "eyes_find.onnx").write_bytes((WEIGHTS / "eyes_find.onnx").read_bytes())
    (tmp_path / "eyes_read.onnx").write_bytes(b"onnx")
    with pytest.raises(WeightsError, match=r"eyes_read\.onnx"):
        Eyes(tmp_path)
