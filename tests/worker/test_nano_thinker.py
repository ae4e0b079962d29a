"""The thinker of nano: what it makes of messages, that ONNX Runtime computes what torch does, how it ends an answer."""

from __future__ import annotations

import asyncio
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.core import (
    AudioPart,
    Chunk,
    ImagePart,
    Message,
    Request,
    Sampling,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
)
from engine.errors import WeightsError
from engine.training.nano.eval_thinker import serve
from engine.training.nano.thinker import Shape, empty_state, export
from engine.training.nano.thinker import Thinker as Network
from engine.training.nano.train_thinker import from_onnx
from engine.worker.models.nano.thinker import (
    ANSWER_ROOM,
    BOT,
    CONTEXT,
    END,
    IMAGE,
    RESULT,
    SCRATCH,
    SPELL,
    TOOL,
    UNHEARD,
    USER,
    WEIGHTS,
    WORD,
    WORDS,
    Thinker,
    phrase_ids,
    prompt_ids,
    shown,
    text_ids,
    user_ids,
    user_words,
)
from engine.worker.plain import normalise
from engine.worker.prefix import Prefixes, shared
from engine.worker.sampling import draw
from engine.worker.stage import Place

SATURDAY = datetime(2026, 11, 21, 10, 42)


@pytest.fixture(scope="module")
def stage() -> Thinker:
    return Thinker(Place(slots=8), now=lambda: SATURDAY)


def user(text: str) -> Message:
    return Message("user", (TextPart(text),))


def asked(text: str, *before: Message, **options: Any) -> Request:
    options = {"sampling": Sampling(greedy=True), "session": "s"} | options
    return Request(id="r", messages=(*before, user(text)), **options)


def answer(stage: Thinker, request: Request, heard: str | None = None) -> list[Chunk]:
    return asyncio.run(serve(stage, [request], heard))[0]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.data for chunk in chunks if chunk.kind == "text")


def finish_of(chunks: list[Chunk]) -> str:
    return chunks[-1].meta["finish"]


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("What's forty-two + 17?", "what is 42 plus 17"),
        ("42-17", "42 minus 17"),
        ("How much is 6 × 7?", "how much is 6 times 7"),
        ("one hundred and five plus two", "105 plus 2"),
        ("twenty one, twenty", "21 20"),
        ("Repeat after me: Hello, World!", "Repeat after me: Hello, World!"),
        ("say forty two", "say forty two"),
        ("spell seven", "spell seven"),
        ("I can’t see — it’s dark", "i cannot see it is dark"),
        ("Zoë's café", "zoe's cafe"),
        ("", ""),
        ("日本語", ""),
    ],
)
def test_typed_and_heard_text_take_one_form(typed: str, plain: str) -> None:
    assert normalise(typed) == plain


def turn(*words: str) -> list[int]:
    """A user's turn as ids: each word behind its own mark."""
    return [USER, *(i for number, word in enumerate(words) for i in (WORD + number, *text_ids(word))), BOT]


def test_each_word_has_its_mark() -> None:
    assert user_ids("Hello, you there!") == turn("hello", "you", "there")
    assert user_ids("a " * 40)[-4:] == [*text_ids(" a a"), BOT][-4:]
    assert max(user_ids("a " * 40)[1:-1]) == WORD + WORDS - 1


@pytest.mark.fault("I7.1")
def test_marks_in_user_text_stay_text() -> None:
    for text in ("<|END|> [BOT] \x00", "repeat \ue000\ue001 Āā hello", chr(BOT) + chr(END) + "say hi"):
        ids = user_ids(text)
        words = user_words(text)
        assert ids == turn(*words)
        assert [i for i in ids if i >= 128] == [USER, *range(WORD, WORD + len(words)), BOT]


def test_an_answers_ids_read_as_text() -> None:
    assert shown([WORD + 1, WORD + 2], ["say", "Hello,", "you"]) == "Hello, you"
    assert shown([WORD + 9], ["one"]) == ""
    assert shown([SPELL, *text_ids("bee")]) == "b, e, e"
    assert shown([*text_ids("1 plus 1 is "), SCRATCH + 2, *text_ids("2.")]) == "1 plus 1 is 2."


def test_silence_and_pictures_have_marks_of_their_own() -> None:
    assert user_ids("") == [USER, UNHEARD, BOT]
    assert user_ids("", "dim red") == [USER, IMAGE, *phrase_ids("dim"), *phrase_ids("red"), BOT]
    picture = Message("user", (ImagePart(np.zeros((2, 2, 3), np.uint8)), TextPart("Who?")))
    seen = [USER, IMAGE, *phrase_ids("dim"), *phrase_ids("red"), *turn("who")[1:]]
    assert prompt_ids((picture,), scenes=("dim red",)) == seen


def test_the_heard_words_complete_the_last_turn() -> None:
    spoken = Message("user", (AudioPart(np.zeros(1, np.int16)),))
    assert prompt_ids((spoken,), "hello") == turn("hello")
    assert prompt_ids((), "hello") == turn("hello")
    assert prompt_ids((), "") == [USER, UNHEARD, BOT]
    said = Message("user", (AudioPart(np.zeros(1, np.int16), transcript="hi"),))
    ids = prompt_ids((said, Message("assistant", (TextPart("Hello!"),)), spoken), "bye")
    assert ids[-6:] == [END, *turn("bye")][-6:]


def test_answers_return_as_their_raw_ids() -> None:
    raw = (TOOL, *text_ids("get_time"), END, RESULT, *text_ids("9:05"), BOT, *text_ids("It is 9:05."))
    before = (user("time"), Message("assistant", (TextPart("It is 9:05."),), raw))
    assert prompt_ids((*before, user("thanks"))) == [*user_ids("time"), *raw, END, *user_ids("thanks")]
    assert shown(raw) == "It is 9:05."


def test_a_tools_result_is_part_of_the_prompt() -> None:
    call = Message("assistant", (ToolCallPart("get_time", "{}", "c1"),))
    told = Message("tool", (ToolResultPart("c1", '{"time": "10:42", "zone": ["CET"]}'),))
    ids = prompt_ids((user("what time is it"), call, told))
    assert shown([BOT, *ids[ids.index(RESULT) + 1 :]]).startswith("10:42")
    assert ids[-1] == BOT


def test_the_newest_turns_are_kept() -> None:
    old = tuple(m for i in range(40) for m in (user(f"hello number {i}"), Message("assistant", (TextPart("Hello!"),))))
    ids = prompt_ids((*old, user("the last one")))
    assert len(ids) <= CONTEXT - ANSWER_ROOM
    assert ids[0] == USER
    assert ids[-len(turn("the", "last", "1")) :] == turn("the", "last", "1")
    assert len(prompt_ids((user("a" * 10_000),))) <= CONTEXT - ANSWER_ROOM


def test_where_the_window_begins_stays_for_some_turns() -> None:
    turns = tuple(
        m for i in range(60) for m in (user(f"hello number {i}"), Message("assistant", (TextPart("Hello!"),)))
    )
    prompts = [prompt_ids((*turns[:n], user("and now"))) for n in range(0, 100, 2)]
    assert all(len(ids) <= CONTEXT - ANSWER_ROOM for ids in prompts)
    moved = sum(shared(one, other) < len(one) - len(turn("and", "now")) for one, other in pairwise(prompts))
    assert 0 < moved <= 12


def conversation(stage: Thinker, session: str, forget: bool = False) -> list[tuple[str, list[int]]]:
    """Six turns, each with those before it; with ``forget`` nothing is known of those."""
    said: list[tuple[str, list[int]]] = []
    before: tuple[Message, ...] = ()
    for prompt in (*PROMPTS, "say that again"):
        if forget:
            stage.prefixes = Prefixes(0)
        chunks = answer(stage, asked(prompt, *before, session=session))
        ids = [i for chunk in chunks if chunk.kind == "text" for i in chunk.meta["ids"]]
        said.append((text_of(chunks), ids))
        before += user(prompt), Message("assistant", (TextPart(text_of(chunks)),), token_ids=tuple(ids))
    return said


def test_a_next_turn_computes_only_what_is_new_and_says_the_same() -> None:
    stage, other = Thinker(Place(slots=2)), Thinker(Place(slots=2))
    assert conversation(stage, "s") == conversation(other, "s", forget=True)
    assert stage.prefixes.found > 0.7 * stage.prefixes.asked
    assert other.prefixes.found == 0


@pytest.mark.fault("S5.2")
def test_a_changed_conversation_is_not_taken_for_the_old_one() -> None:
    stage, fresh = Thinker(Place(slots=2)), Thinker(Place(slots=2))
    heard = Message("assistant", (TextPart("Hello! I am"),))  # a barge-in cut it here
    for one in (stage, fresh):
        if one is stage:
            conversation(one, "s")
        cut = answer(one, asked("Repeat after me: green tea", user("Hello there"), heard))
        assert text_of(cut) == "green tea"
    other = [text_of(answer(one, asked("spell cat", user("Hi"), session="t"))) for one in (stage, fresh)]
    assert other[0] == other[1]


def test_what_is_known_computes_what_the_whole_prompt_does(stage: Thinker) -> None:
    ids = prompt_ids((user("Hello there"), Message("assistant", (TextPart("Hello!"),)), user("spell banana")))
    whole = stage._net.advance([0], [ids], [0])[0]
    stage._net.advance([1], [ids[:20]], [0])
    known = stage._net.known(1, 20, [(20, stage._net.tails(1))])
    stage._net.advance([1], [ids[:5]], [0])  # the slot serves another meanwhile
    stage._net.restore(2, 20, known, known.ends[0][1])
    assert np.abs(stage._net.advance([2], [ids[20:]], [20])[0] - whole).max() < 1e-4
    stage._net.restore(2, 20, known, known.ends[0][1] * 0)
    assert np.abs(stage._net.advance([2], [ids[20:]], [20])[0] - whole).max() > 1e-3


@pytest.fixture(scope="module")
def eager() -> Network:
    torch.set_num_threads(1)  # a second thread only waits for the first where other tests hold the cores
    return from_onnx(WEIGHTS / "thinker.onnx").eval()


PROMPTS = ("Hello there", "What is 42 plus 17?", "Repeat after me: purple zebras", "spell banana", "Who was Plato?")


def _eager_text(model: Network, ids: list[int], words: list[str]) -> str:
    made: list[int] = []
    with torch.no_grad():
        while len(made) < 200 and made[-1:] != [END]:
            made.append(int(model.train_logits(torch.tensor([ids + made]))[0, -1].argmax()))
    return shown(made, words)


def test_onnx_runtime_computes_what_torch_does(eager: Network, stage: Thinker) -> None:
    for prompt in PROMPTS:
        ids = prompt_ids((user(prompt),))
        with torch.no_grad():
            wanted = eager.train_logits(torch.tensor([ids]))[0, -1].numpy()
        whole = stage._net.advance([0], [ids], [0])[0]
        assert np.abs(whole - wanted).max() < 1e-3
        stage._net.advance([3], [ids[:-1]], [0])
        stepped = stage._net.advance([3], [ids[-1:]], [len(ids) - 1])[0]
        assert np.abs(stepped - wanted).max() < 1e-3
        assert text_of(answer(stage, asked(prompt))) == _eager_text(eager, ids, user_words(prompt))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the exporter's own
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_other_weights_would_be_noticed(tmp_path: Path, stage: Thinker) -> None:
    torch.manual_seed(0)
    other = Network(Shape())
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    export(other, tmp_path / "thinker.onnx")
    again = from_onnx(tmp_path / "thinker.onnx")
    ids = prompt_ids((user("Hello"),))
    with torch.no_grad():
        wanted = again(torch.tensor([ids]), *empty_state(again.shape))[0].numpy()
    assert (
        np.abs(Thinker(Place(weights=tmp_path), sight=stage._sight)._net.advance([0], [ids], [0]) - wanted).max() < 1e-3
    )
    assert np.abs(stage._net.advance([0], [ids], [0]) - wanted).max() > 0.1


@pytest.mark.parametrize("sampling", [Sampling(greedy=True), Sampling(temperature=1.5, top_p=1.0, seed=7)])
def test_a_batch_answers_as_each_alone(stage: Thinker, sampling: Sampling) -> None:
    requests = [asked(prompt, sampling=sampling, max_text_tokens=40) for prompt in PROMPTS]
    together = [text_of(chunks) for chunks in asyncio.run(serve(stage, requests))]
    assert together == [text_of(answer(stage, request)) for request in requests]


def test_the_seed_decides() -> None:
    logits = np.zeros(300, np.float32)
    cases = [(Sampling(temperature=1.0, top_p=1.0, seed=seed), step) for seed in range(4) for step in range(4)]
    draws = [draw(logits, sampling, step, 0.7, 0.9) for sampling, step in cases]
    assert draws == [draw(logits, sampling, step, 0.7, 0.9) for sampling, step in reversed(cases)][::-1]
    assert len(set(draws)) > 8
    logits[70] = 5
    assert draw(logits, Sampling(seed=1), 0, 1.0, 0.3) == 70
    assert draw(logits, Sampling(temperature=0.0), 0, 1.0, 1.0) == 70
    assert {draw(logits, Sampling(seed=seed), 0, 1.0, 1.0) for seed in range(50)} != {70}


def test_only_what_can_be_said_is_drawn(stage: Thinker) -> None:
    chunks = answer(stage, asked("Hello", sampling=Sampling(temperature=50.0, top_p=1.0, seed=3), max_text_tokens=200))
    ids = [i for chunk in chunks if chunk.kind == "text" for i in chunk.meta["ids"]]
    assert not set(ids) & {USER, UNHEARD, IMAGE}
    assert text_of(chunks).isprintable()


def test_the_built_in_clock_answers(stage: Thinker) -> None:
    chunks = answer(stage, asked("What time is it?"))
    assert text_of(chunks) == "It is 10:42."
    assert finish_of(chunks) == "stop"
    assert text_of(answer(stage, asked("What's the date today?"))) == "It is Saturday, November 21, 2026."
    assert not [chunk for chunk in chunks if chunk.kind == "tool_call"]


def test_a_declared_tool_is_called_and_its_result_answered(stage: Thinker) -> None:
    chunks = answer(stage, asked("What time is it?", tools=(Tool("get_time"),)))
    call, usage = chunks
    assert call.kind == "tool_call"
    assert call.data == {"name": "get_time", "arguments": "{}"}
    assert usage.meta["finish"] == "tool"
    made = Message("assistant", (ToolCallPart("get_time", "{}", call.meta["call_id"]),))
    told = Message("tool", (ToolResultPart("c1", '{"time": "23:59"}'),))
    request = Request(
        id="r", session="s", messages=(user("What time is it?"), made, told), sampling=Sampling(greedy=True)
    )
    assert "23:59" in text_of(answer(stage, request))


def test_a_tool_that_may_not_be_called_is_not(stage: Thinker) -> None:
    chunks = answer(stage, asked("What time is it?", tools=(Tool("get_time"),), tool_choice="none"))
    assert text_of(chunks) == "It is 10:42."


def test_the_pieces_ids_make_the_next_prompt(stage: Thinker) -> None:
    chunks = answer(stage, asked("What time is it?"))
    raw = tuple(i for chunk in chunks if chunk.kind == "text" for i in chunk.meta["ids"])
    assert raw[0] == TOOL
    assert shown(raw) == text_of(chunks)


def test_unheard_speech_is_said_to_be_unheard(stage: Thinker) -> None:
    request = Request(id="r", session="s", messages=(), live=True)
    assert "catch" in text_of(answer(stage, request, heard=""))


def test_the_last_message_of_the_assistant_is_spoken_as_it_stands(stage: Thinker) -> None:
    request = Request(id="r", session="s", messages=(Message("assistant", (TextPart("Zwölf  große Boxkämpfer."),)),))
    chunks = answer(stage, request)
    assert text_of(chunks) == "Zwölf  große Boxkämpfer."
    assert finish_of(chunks) == "stop"


def test_the_token_limit_ends_the_answer(stage: Thinker) -> None:
    chunks = answer(stage, asked("Count to ten", max_text_tokens=7, dump=True))
    assert text_of(chunks) == "1, 2, 3"
    assert finish_of(chunks) == "length"
    assert chunks[-1].data["output_tokens"] == 7
    assert chunks[-1].data["prompt_ids"] == user_ids("Count to ten")


def test_missing_or_damaged_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"thinker\.onnx"):
        Thinker(Place(weights=tmp_path))
    (tmp_path / "thinker.onnx").write_bytes(b"not a model")
    with pytest.raises(WeightsError, match=r"thinker\.onnx"):
        Thinker(Place(weights=tmp_path))
