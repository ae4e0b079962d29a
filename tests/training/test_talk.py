"""Dialogues over several turns: what each kind's answers follow from, and that none of them is a held-out one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import pytest

from engine.core import Message, TextPart, TokenIds, ToolCallPart, ToolResultPart
from engine.training.nano import acting, dialogues, looking, make_dialogues, remembering
from engine.training.nano.answers import Reply, pointed
from engine.training.nano.dialogues import stream
from engine.training.nano.judge import answers_rightly, plain_words
from engine.training.nano.scenery import parsed, sample_scene
from engine.training.nano.train_thinker import NO_LOSS, answer_of, encode, reply_ids, seen, slipped
from engine.training.nano.turns import EVAL, Dialogue, Turn, evaluation_texts, read_dialogues, saying
from engine.worker.models.nano import own
from engine.worker.models.nano.skills import SKILLS, parse
from engine.worker.models.nano.tokens import (
    CONTEXT,
    END,
    IMAGE,
    PRIVATE,
    TOKENIZER,
    TOOL,
    TOOLS,
    USER,
    call_ids,
    call_text,
    prompt_ids,
    user_words,
    word_ids,
)


def aside() -> Turn:
    return saying("hello", "Hello! What can I do for you?")


def said(dialogue: Dialogue) -> list[str]:
    """What a listener hears of each turn."""
    view, answers = own.View(), list[str]()
    for turn in dialogue:
        view = seen(view, turn)
        answers.append(answer_of(turn, view))
        view = replace(view, said=(*view.said, answers[-1]))
    return answers


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
        for turn, answer in zip(dialogue, said(dialogue), strict=True):
            expect = turn.request.expect
            assert answer or expect["kind"] == "call", turn
            assert expect["kind"] in ("called", "call") or answers_rightly(expect, answer), (turn, answer)


def test_follow_ups_mean_what_they_should() -> None:
    rng = random.Random(9)
    for _ in range(300):
        dialogue = remembering._sums(rng, aside)
        assert all(" is " in answer and answer != own.NO_NUMBER for answer in said(dialogue)), said(dialogue)
        days = said(remembering._calendar(rng, aside))
        assert all(" comes " in answer for answer in days), days


def test_calls_point_at_the_users_words() -> None:
    rng = random.Random(8)
    made = (turn for _ in range(300) for turn in acting.acting_dialogue(rng, aside))
    calls = [
        (turn, turn.called or turn.reply.call) for turn in made if turn.called or turn.request.expect["kind"] == "call"
    ]
    assert len(calls) > 100
    for turn, call in calls:
        name, values = parse(call_text(call_ids(call)[1:], user_words((user(turn),))))
        assert name in {skill.name for skill in SKILLS}
        for slot, value in values.items():
            wanted = turn.request.expect[slot]
            assert plain_words(value) == plain_words(str(wanted)), (turn.request.text, call)


def user(turn: Turn) -> Message:
    return Message("user", (TextPart(turn.request.text),))


def test_a_word_that_is_not_there_cannot_be_pointed_at() -> None:
    assert pointed("say forty two and forty two", "forty two", last=True) == "\ue004 \ue005"
    assert pointed("what is forty two plus 1", "42") == "\ue002"
    with pytest.raises(ValueError, match="banana"):
        pointed("spell apple", "banana")


def test_a_call_comes_back_without_its_arguments() -> None:
    request = dialogues.Request("set a timer for 5 minutes", {"kind": "call", "name": "timer"})
    call = Turn(request, Reply(call="timer time= \ue004 \ue005"), tools=("timer",))
    ids, targets = encode((call,))
    assert ids[:3] == [TOOLS, *word_ids("timer"), USER]
    assert TOOL in targets
    told = replace(call, called=call.reply.call, result="ok", reply=Reply("Done."))
    bare = [encode((told,), random.Random(seed)) for seed in range(20)]
    short = [*call_ids("timer"), END]
    alone = [targets for ids, targets in bare if ids[ids.index(TOOL) :][:3] == short]
    assert 3 < len(alone) < 17
    assert all(TOOL not in targets for targets in alone)


def test_a_picture_stands_before_the_words() -> None:
    turn = replace(saying("what is it", "Okay."), scene=parsed("dim red"))
    assert encode((turn,))[0][:2] == [USER, IMAGE]


def test_scenes_as_lines_and_back() -> None:
    rng = random.Random(3)
    scenes = [sample_scene(rng, frames) for frames in (1, 2) for _ in range(300)]
    assert [parsed(str(scene)) for scene in scenes] == scenes


def test_earlier_answers_are_now_and_then_known_by_their_text_alone() -> None:
    dialogue = (saying("thanks", "You are welcome!"), saying("hello", "Hello! What can I do for you?"))
    taught = [sum(t != NO_LOSS for t in encode(dialogue, random.Random(seed))[1]) for seed in range(60)]
    assert set(taught) == {2, 4}


def test_the_held_out_sets_are_what_their_seed_draws() -> None:
    rng = random.Random(make_dialogues.SEED)
    for name, lines in make_dialogues.drawn_sets(rng):
        assert read_dialogues(EVAL / name) == lines


def test_the_held_out_sets_stay_out() -> None:
    held_out = read_dialogues(EVAL / "dialogues.jsonl")
    assert len(held_out) == 200
    assert len(read_dialogues(EVAL / "scenes.jsonl")) == 240
    scenes = {turn["scene"] for d in held_out for turn in d["turns"] if "scene" in turn} - {"unclear"}
    forbidden = evaluation_texts()
    assert len(scenes) > 80
    for dialogue in islice(stream(11), 3000):
        for turn in dialogue:
            assert str(turn.scene) not in scenes
            assert " ".join(plain_words(turn.request.text)) not in forbidden


def test_a_held_out_turn_would_be_noticed() -> None:
    turn = read_dialogues(EVAL / "dialogues.jsonl")[0]["turns"][0]
    assert not dialogues.allowed(dialogues.Request(turn["text"].upper(), {"kind": "says"}))


def test_every_share_is_drawn() -> None:
    assert sum(dialogues.SHARES.values()) == 100
    drawn = [turn for dialogue in islice(stream(2), 400) for turn in dialogue]
    assert any(turn.scene for turn in drawn)
    assert any(turn.called.startswith("timer ") for turn in drawn)
    assert any(turn.reply.call.startswith("recall ") for turn in drawn)


def test_what_is_trained_is_what_the_stage_feeds() -> None:
    """The prompt of a dialogue's last turn, as the stage makes it of messages, is what training shows before it."""
    checked = 0
    for dialogue in islice(stream(13), 400):
        ids = encode(dialogue)[0]
        messages = list[Message]()
        for turn in dialogue[:-1]:
            messages.append(user(turn))
            if turn.called:
                break
            messages.append(
                Message("assistant", (TextPart(""),), token_ids=TokenIds(TOKENIZER, tuple(reply_ids(turn.reply))))
            )
        else:
            if len(ids) < CONTEXT - 100 and not any(turn.scene for turn in dialogue):
                prompt = prompt_ids((*messages, user(dialogue[-1])), skills=dialogue[0].tools)
                assert ids[: len(prompt)] == prompt
                checked += 1
    assert checked > 150


def test_a_clients_tool_and_its_result_stand_as_the_stage_feeds_them() -> None:
    request = dialogues.Request("what time is it", {"kind": "time"})
    turn = Turn(request, Reply(call="tell"), called="get_time", result="9:05")
    call = Message("assistant", (ToolCallPart("get_time", "{}", "c"),))
    prompt = prompt_ids((user(turn), call, Message("tool", (ToolResultPart("c", '{"time": "9:05"}'),))))
    assert encode((turn,))[0][: len(prompt)] == prompt


def test_slips_of_the_finger_spare_what_is_pointed_at() -> None:
    rng = random.Random(6)
    turn = Turn(
        dialogues.Request("please spell banana", {"kind": "spell", "word": "banana"}),
        Reply(call=f"spell {chr(PRIVATE + 2)}"),
    )
    texts = {slipped(turn, rng)[0] for _ in range(2000)}
    assert len(texts) > 10
    assert all(text.endswith("banana") for text in texts)
