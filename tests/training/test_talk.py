"""Dialogues over several turns: what each kind's answers follow from, and that none of them is a held-out one."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import islice

import pytest
import torch

from engine.core import Message, TextPart, ToolCallPart, ToolResultPart
from engine.training.nano import acting, dialogues, looking, remembering, seeing
from engine.training.nano.answers import WORD
from engine.training.nano.dialogues import stream
from engine.training.nano.judge import answers_rightly, plain_words
from engine.training.nano.seeing import Group, Scene, Wanted
from engine.training.nano.thinker import Shape
from engine.training.nano.thinker import Thinker as Network
from engine.training.nano.train_thinker import answer_ids, encode, grown
from engine.training.nano.turns import EVAL, Dialogue, Turn, evaluation_texts, read_dialogues, saying
from engine.worker.models.nano import scene
from engine.worker.models.nano.skills import SKILLS, parse
from engine.worker.models.nano.thinker import (
    CONTEXT,
    END,
    IMAGE,
    TOOL,
    TOOLS,
    USER,
    phrase_ids,
    prompt_ids,
    shown,
    user_words,
)

SCENE = Scene(
    "light", "white", (Group("2", "red", "circle", "left"), Group("1", "blue", "star", "right")), "A7", "still"
)
_PLACE = "left|right|middle|(top|bottom)( left| right)?"
_COLOUR, _SHAPE = "|".join(scene.COLOURS), "|".join(scene.SHAPES)
_GROUP = rf"([1-5]|many) ({_COLOUR}|\?) ({_SHAPE}|\?)( ({_PLACE}))?"
FORM = re.compile(
    rf"unclear|(dark|dim|light) ({_COLOUR})(: {_GROUP}(, {_GROUP}){{0,3}})?(; reads [A-Z0-9]{{1,4}})?"
    r"(; (still|moving( left| right| up| down)?))?"
)
"""What the eyes write behind a picture's mark."""


def aside() -> Turn:
    return saying("hello", "Hello!")


def said(turn: Turn) -> str:
    return shown(answer_ids(turn.answer), [word.strip('"') for word in user_words(turn.request.text)])


MAKERS: dict[str, Callable[[random.Random], Dialogue]] = {
    "looking": lambda rng: looking.looking_dialogue(rng, aside),
    "remembering": lambda rng: remembering.remembering_dialogue(rng, aside),
    "acting": lambda rng: acting.acting_dialogue(rng, aside),
    **{
        maker.__name__: lambda rng, maker=maker: maker(rng, aside)
        for maker in (
            remembering._sums, remembering._calendar, remembering._words, remembering._facts, remembering._left_out,
            remembering._hand_over,
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_answers_rightly_and_fits(kind: str) -> None:
    rng = random.Random(4)
    for _ in range(150):
        dialogue = MAKERS[kind](rng)
        ids, targets = encode(dialogue)
        assert len(ids) == len(targets) < CONTEXT
        assert max(targets) > 0
        for turn in dialogue:
            assert turn.tool or answers_rightly(turn.request.expect, said(turn)), turn
            assert turn.scene is None or FORM.fullmatch(turn.scene), turn.scene


def test_a_scenes_text_has_the_form_that_the_eyes_write() -> None:
    assert str(SCENE) == "light white: 2 red circle left, 1 blue star right; reads A7; still"
    assert str(Scene("dim", "black")) == "dim black"
    groups = (scene.Group(2, "red", "circle", "left"), scene.Group(1, "blue", "star", "right"))
    assert str(scene.Scene("light", "white", groups, "A7", "still")) == str(SCENE)
    assert not FORM.fullmatch("light white: 6 red circle")


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (seeing.describe(SCENE), "I see 2 red circles on the left and 1 blue star on the right. It reads A7."),
        (seeing.colour_of(SCENE, Wanted("", "circle")), "The circles are red."),
        (seeing.colour_of(SCENE, Wanted("", "heart")), "I see no heart."),
        (seeing.how_many(SCENE, Wanted()), "2 red circles and 1 blue star, so 3 things."),
        (seeing.how_many(SCENE, Wanted("blue", "star")), "I see 1 blue star."),
        (seeing.where_is(SCENE, Wanted("", "star")), "The blue star is on the right."),
        (seeing.is_there(SCENE, Wanted("green", "star")), "No, I see no green star."),
        (seeing.is_moving(SCENE), "No, it is still."),
        (
            seeing.colour_of(Scene("dim", "red", (Group("1", "?", "star"),)), Wanted("", "star")),
            "I can't tell which color.",
        ),
        (seeing.is_there(Scene("dim", "red", (Group("1", "red", "?"),)), Wanted("", "star")), "I can't tell."),
        (seeing.still_there(SCENE, Scene("light", "white", SCENE.groups[1:]), None), "No, the red circles are gone."),
        (seeing.what_changed(SCENE, Scene("dark", "white", SCENE.groups, "A7")), "It is now dark."),
        (seeing.what_changed(SCENE, SCENE), "Nothing has changed."),
    ],
)
def test_what_follows_from_a_scene(answer: str, wanted: str) -> None:
    assert answer == wanted


def test_calls_point_at_the_users_words() -> None:
    rng = random.Random(8)
    calls = [turn for _ in range(300) for turn in acting.acting_dialogue(rng, aside) if turn.tool]
    assert len(calls) > 100
    for turn in calls:
        words = user_words(turn.request.text)
        text = "".join(f" {words[ord(c) - WORD]}" if ord(c) >= WORD else c for c in turn.tool)
        name, values = parse(text)
        assert name in {skill.name for skill in SKILLS}
        for slot, value in values.items():
            told = turn.request.expect[slot]
            assert plain_words(value) == plain_words(str(told)), (turn.request.text, turn.tool)


def test_a_call_is_taught_once_and_comes_back_without_its_arguments() -> None:
    call = Turn(
        saying("set a timer for 5 minutes", "").request, "", tools=("timer",), tool=f"timer time={chr(WORD + 4)}"
    )
    ids, targets = encode((call,))
    assert ids[:3] == [TOOLS, *phrase_ids("timer"), USER]
    assert TOOL in targets
    told = Turn(call.request, "Done.", tools=("timer",), tool=call.tool, result="ok")
    ids, targets = encode((told,))
    assert ids[ids.index(TOOL) :][:3] == [TOOL, *phrase_ids("timer"), END]
    assert TOOL not in targets


def test_a_picture_stands_before_the_words() -> None:
    ids, _ = encode((saying("what is it", "x", "dim red"),))
    assert ids[1:4] == [IMAGE, *phrase_ids("dim"), *phrase_ids("red")]


def test_the_held_out_sets_are_whole_and_stay_out() -> None:
    held_out = read_dialogues(EVAL / "dialogues.jsonl")
    assert len(held_out) == 200
    assert len(read_dialogues(EVAL / "scenes.jsonl")) == 240
    scenes = {turn["scene"] for d in held_out for turn in d["turns"] if "scene" in turn} - {"unclear"}
    forbidden = evaluation_texts()
    assert len(scenes) > 80
    for dialogue in islice(stream(11), 3000):
        for turn in dialogue:
            assert turn.scene not in scenes
            assert " ".join(plain_words(turn.request.text)) not in forbidden


def test_a_held_out_turn_would_be_noticed() -> None:
    turn = read_dialogues(EVAL / "dialogues.jsonl")[0]["turns"][0]
    assert not dialogues.allowed(dialogues.Request(turn["text"].upper(), {"kind": "says"}))


def test_every_share_is_drawn() -> None:
    assert sum(dialogues.SHARES.values()) == 100
    drawn = list(islice(stream(2), 400))
    assert any(turn.scene for d in drawn for turn in d)
    assert any(turn.tool.startswith("timer ") for d in drawn for turn in d)


def test_what_is_trained_is_what_the_stage_feeds() -> None:
    """The prompt of a dialogue's last turn, as the stage makes it of messages, is what training shows before it."""
    checked = 0
    for dialogue in islice(stream(13), 400):
        if len(encode(dialogue)[0]) > 500:
            continue
        messages: list[Message] = []
        scenes: list[str | None] = []
        for turn in dialogue:
            messages.append(Message("user", (TextPart(turn.request.text),)))
            scenes.append(turn.scene)
            if turn is dialogue[-1]:
                break
            if turn.tool:
                messages += [Message("assistant", (ToolCallPart(turn.tool.split()[0], "{}", "c"),))]
                messages += [Message("tool", (ToolResultPart("c", turn.result),))]
                scenes += [None, None]
            messages.append(Message("assistant", (TextPart(""),), token_ids=tuple(answer_ids(turn.answer))))
            scenes.append(None)
        prompt = prompt_ids(tuple(messages), scenes=scenes, skills=dialogue[0].tools)
        assert encode(dialogue)[0][: len(prompt)] == prompt
        checked += 1
    assert checked > 300


def test_a_grown_network_says_the_same_and_reads_new_marks_like_letters() -> None:
    torch.manual_seed(0)
    old = Network(Shape(vocabulary=300, context=64))
    torch.nn.init.normal_(old.head.weight, std=0.1)
    new = grown(old, Shape(vocabulary=320, layers=6))
    ids = torch.tensor([[65, 66, 97, 98, 270]])
    with torch.no_grad():
        before, after = old.train_logits(ids), new.train_logits(ids)
    assert torch.allclose(before, after[..., :300], atol=1e-5)
    assert new.head.weight[300:].std() > 0.05
