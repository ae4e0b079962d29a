"""What follows from what the eyes tell: an answer for each kind of question, of one picture and of two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.worker.models.nano.scene import COLOURS, SHAPES, UNSURE, Group, Scene
from engine.worker.models.nano.seeing import (
    ABOUT,
    BEYOND,
    CANNOT_TELL,
    COMPARED,
    NO_PICTURE,
    NOTHING_CLEAR,
    ONE_PICTURE,
    looked,
)

CIRCLES, STAR = Group(2, "red", "circle", "left"), Group(1, "blue", "star", "right")
SCENE = Scene("light", "white", (CIRCLES, STAR), "A7", "still")
ODD = Scene("dim", "red", (Group(1, UNSURE, "star"), Group(9, "green", UNSURE, "top")))
EMPTY = Scene("dark", "gray")


@pytest.mark.parametrize(
    ("call", "scene", "said"),
    [
        ("describe", SCENE, "I see 2 red circles on the left and 1 blue star on the right. It reads A 7."),
        ("describe", ODD, "It is dim. I see 1 star and many green things at the top."),
        ("describe", EMPTY, "It is dark. I see only gray."),
        ("color circle", SCENE, "The circles are red."),
        ("color heart", SCENE, "I see no heart."),
        ("color star", ODD, "I can't tell which color."),
        ("color", SCENE, "They are red."),
        ("color", EMPTY, "I see only gray."),
        ("shape", SCENE, "They are circles."),
        ("shape", Scene("dim", "red", (STAR,)), "It is a star."),
        ("count", SCENE, "2 red circles and 1 blue star, so 3 things."),
        ("count blue star", SCENE, "I see 1 blue star."),
        ("count blue", SCENE, "I see 1 blue star."),
        ("count heart", SCENE, "I see no hearts."),
        ("count", ODD, "I see many things."),
        ("where star", SCENE, "The blue star is on the right."),
        ("where", SCENE, "The red circles are on the left."),
        ("where", ODD, "The star is spread out."),
        ("there green star", SCENE, "No, I see no green star."),
        ("there star", SCENE, "Yes, I see 1 blue star."),
        ("there heart", ODD, CANNOT_TELL),
        ("moving", SCENE, "No, it is still."),
        ("moving", EMPTY, ONE_PICTURE),
        ("dark", EMPTY, "Yes, it is dark."),
        ("bright", EMPTY, "No, it is dark."),
        ("lighting", ODD, "It is dim."),
        ("read", SCENE, "It reads A 7."),
        ("read", Scene("dim", "red", (), "42"), "It reads 42."),
        ("read", EMPTY, "I see no letters or numbers."),
        ("background", SCENE, "The background is white."),
        ("beyond", SCENE, BEYOND),
        ("describe", Scene(), NOTHING_CLEAR),
        ("changed", SCENE, ONE_PICTURE),
        ("banana", EMPTY, "It is dark. I see only gray."),
    ],
)
def test_of_one_picture(call: str, scene: Scene, said: str) -> None:
    assert looked(call, (scene,)) == said


@pytest.mark.parametrize(
    ("call", "now", "said"),
    [
        ("still", Scene("light", "white", (STAR,)), "No, the red circles are gone."),
        ("still star", Scene("light", "white", (STAR,)), "Yes, the blue star is still there."),
        ("gone star", Scene("light", "white", (STAR,)), "No, the blue star is still there."),
        ("gone", Scene("light", "white", (STAR,)), "Yes, the red circles are gone."),
        ("still heart", SCENE, "I see no heart."),
        ("changed", SCENE, "Nothing has changed."),
        ("changed", Scene("dark", "white", SCENE.groups, "A7"), "It is now dark."),
        ("changed", Scene("light", "white", (STAR,), "A7"), "The red circles are gone."),
        ("color star", Scene("light", "white", (Group(1, "pink", "star"),)), "The star is pink."),
    ],
)
def test_of_two_pictures(call: str, now: Scene, said: str) -> None:
    assert looked(call, (SCENE, now)) == said


def test_without_a_picture_it_says_so() -> None:
    assert looked("describe", ()) == NO_PICTURE
    assert looked("changed", (Scene(), SCENE)) == ONE_PICTURE


_group = st.builds(Group, st.integers(1, 9), st.sampled_from([*COLOURS, UNSURE]), st.sampled_from([*SHAPES, UNSURE]))
_scene = st.builds(
    Scene,
    st.sampled_from(["", "dark", "dim", "light"]),
    st.sampled_from(COLOURS),
    st.lists(_group, max_size=4).map(tuple),
)


@given(
    st.lists(_scene, max_size=3),
    st.sampled_from([*ABOUT, *COMPARED]),
    st.sampled_from(["", *COLOURS]),
    st.sampled_from(["", *SHAPES]),
)
def test_every_question_has_an_answer(scenes: list[Scene], kind: str, colour: str, shape: str) -> None:
    said = looked(f"{kind} {colour} {shape}", scenes)
    assert said.endswith(".")
    assert UNSURE not in said
    assert "  " not in said
