"""The thinker of nano: what it makes of messages, that ONNX Runtime computes what torch does, how it ends an answer."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.chunk import Chunk, Text, ToolCall, Usage
from engine.core import Message, Request, Sampling, TextPart, TokenIds, ToolCallPart, ToolDefinition, ToolResultPart
from engine.errors import ContextOverflow, RequestError, WeightsError
from engine.stream import of
from engine.training.nano.eval_thinker import serve
from engine.training.nano.regraph import regraph
from engine.training.nano.thinker import Shape, empty_state, export
from engine.training.nano.thinker import Thinker as Network
from engine.training.nano.train_thinker import from_onnx
from engine.worker.loop.prefix import Prefixes
from engine.worker.models.nano.examples import EXAMPLES
from engine.worker.models.nano.sampling import draw
from engine.worker.models.nano.thinker import MOST_CHARACTERS, WEIGHTS, Thinker
from engine.worker.models.nano.tokens import (
    END,
    TOKENIZER,
    TOOL,
    VOCABULARY,
    WORD,
    call_ids,
    prompt_ids,
    user_ids,
)
from engine.worker.pace import OneFrame
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import only

SATURDAY = datetime(2026, 11, 21, 10, 42)


@pytest.fixture(scope="module")
def stage() -> Thinker:
    return Thinker(StageConfig(slots=8), now=lambda: SATURDAY)


def user(text: str) -> Message:
    return Message("user", (TextPart(text),))


def asked(text: str, *before: Message, **options: Any) -> Request:
    options = {"sampling": Sampling(greedy=True), "session": "s"} | options
    return Request(id="r", messages=(*before, user(text)), **options)


def answer(stage: Thinker, request: Request, heard: str | None = None) -> list[Chunk]:
    return asyncio.run(serve(stage, [request], heard))[0]


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))


def finish_of(chunks: list[Chunk]) -> str:
    return only(Usage, chunks)[-1].finish


def conversation(stage: Thinker, session: str, forget: bool = False) -> list[tuple[str, list[int]]]:
    """Six turns, each with those before it; with ``forget`` nothing is known of those."""
    said: list[tuple[str, list[int]]] = []
    before: tuple[Message, ...] = ()
    for prompt in (*PROMPTS, "say that again"):
        if forget:
            stage.prefixes = Prefixes(0)
        chunks = answer(stage, asked(prompt, *before, session=session))
        ids = [i for chunk in chunks if isinstance(chunk, Text) for i in chunk.token_ids]
        said.append((text_of(chunks), ids))
        before += (
            user(prompt),
            Message("assistant", (TextPart(text_of(chunks)),), token_ids=TokenIds(TOKENIZER, tuple(ids))),
        )
    return said


def test_a_next_turn_computes_only_what_is_new_and_says_the_same() -> None:
    stage, other = Thinker(StageConfig(slots=2)), Thinker(StageConfig(slots=2))
    assert conversation(stage, "s") == conversation(other, "s", forget=True)
    assert stage.prefixes.found > 0.7 * stage.prefixes.asked
    assert other.prefixes.found == 0


@pytest.mark.fault("S5.2")
def test_a_changed_conversation_is_not_taken_for_the_old_one() -> None:
    stage, fresh = Thinker(StageConfig(slots=2)), Thinker(StageConfig(slots=2))
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
    stage._net.advance([1], [ids[:8]], [0])
    prefix = stage._net.prefix_kv(1, 8, [(8, stage._net.conv_state(1))])
    stage._net.advance([1], [ids[:5]], [0])  # the slot serves another meanwhile
    stage._net.restore(2, 8, prefix, prefix.ends[0][1])
    assert np.abs(stage._net.advance([2], [ids[8:]], [8])[0] - whole).max() < 1e-4
    stage._net.restore(2, 8, prefix, prefix.ends[0][1] * 0)
    assert np.abs(stage._net.advance([2], [ids[8:]], [8])[0] - whole).max() > 1e-3


@pytest.fixture(scope="module")
def eager() -> Network:
    torch.set_num_threads(1)  # a second thread only waits for the first where other tests hold the cores
    return from_onnx(WEIGHTS / "thinker.onnx").eval()


PROMPTS = ("Hello there", "What is 42 plus 17?", "Repeat after me: purple zebras", "spell banana", "Who was Plato?")


def _last_logits(model: Network, ids: list[int]) -> torch.Tensor:
    last = torch.zeros(1, len(ids), dtype=torch.bool)
    last[0, -1] = True
    with torch.no_grad():
        return model.train_logits(torch.tensor([ids]), last)[0]


def _eager_ids(model: Network, ids: list[int]) -> list[int]:
    made: list[int] = []
    while len(made) < 60 and made[-1:] != [END]:
        made.append(int(_last_logits(model, ids + made).argmax()))
    return made


def test_onnx_runtime_computes_what_torch_does(eager: Network, stage: Thinker) -> None:
    for prompt in PROMPTS:
        ids = prompt_ids((user(prompt),))
        wanted = _last_logits(eager, ids).numpy()
        whole = stage._net.advance([0], [ids], [0])[0]
        assert np.abs(whole - wanted).max() < 1e-3
        stage._net.advance([3], [ids[:-1]], [0])
        stepped = stage._net.advance([3], [ids[-1:]], [len(ids) - 1])[0]
        assert np.abs(stepped - wanted).max() < 1e-3
        chunks = answer(stage, asked(prompt))
        made = [i for chunk in chunks if isinstance(chunk, Text) for i in chunk.token_ids]
        assert [*made, END] == _eager_ids(eager, ids) or made == _eager_ids(eager, ids)


def _scattered(folder: Path) -> None:
    """Other weights, as a training leaves them."""
    torch.manual_seed(0)
    other = Network(Shape())
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    export(other, folder / "thinker.onnx")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the exporter's own
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_other_weights_would_be_noticed(tmp_path: Path, stage: Thinker) -> None:
    _scattered(tmp_path)
    again = from_onnx(tmp_path / "thinker.onnx")
    ids = prompt_ids((user("Hello"),))
    with torch.no_grad():
        wanted = again(torch.tensor([ids]), *empty_state(again.shape))[0].numpy()
    assert (
        np.abs(Thinker(StageConfig(weights=tmp_path), sight=stage._sight)._net.advance([0], [ids], [0]) - wanted).max()
        < 1e-3
    )
    assert np.abs(stage._net.advance([0], [ids], [0]) - wanted).max() > 0.1


def test_a_step_late_in_a_conversation_takes_little_longer_than_an_early_one(stage: Thinker) -> None:
    """What lies behind it is read, not copied for every head that looks at it: in a batch that took 8 times as long."""
    slots, ids = list(range(8)), [[WORD]] * 8
    taken_s: dict[int, list[float]] = {20: [], 380: []}
    for _ in range(60):
        for past, times in taken_s.items():
            begun_s = time.thread_time()
            stage._net.advance(slots, ids, [past] * 8)
            times.append(time.thread_time() - begun_s)
    assert min(taken_s[380]) < 4 * min(taken_s[20])


def test_a_batch_of_conversations_of_different_lengths_computes_what_each_alone_does(stage: Thinker) -> None:
    lengths = [0, 1, 40, 300]
    rng = np.random.default_rng(1)
    alone: list[np.ndarray] = []
    for slot, length in enumerate(lengths):
        before = rng.integers(WORD, VOCABULARY, length).tolist()
        if before:
            stage._net.advance([slot], [before], [0])
            stage._net.advance([slot + 4], [before], [0])
        alone.append(stage._net.advance([slot + 4], [[WORD, END]], [length])[0])
    together = stage._net.advance([0, 1, 2, 3], [[WORD, END]] * 4, lengths)
    assert np.abs(together - np.array(alone)).max() < 1e-4
    wrong = stage._net.advance([0, 1, 2, 3], [[WORD, END]] * 4, [0, 1, 39, 300])  # the control: one place off
    assert np.abs(wrong - together).max() > 1e-3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the exporter's own
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_another_graph_leaves_the_weights_where_they_are(tmp_path: Path, stage: Thinker) -> None:
    for name in ("thinker.onnx", "thinker.weights"):
        (tmp_path / name).write_bytes((WEIGHTS / name).read_bytes())
    regraph(tmp_path)
    assert (tmp_path / "thinker.weights").read_bytes() == (WEIGHTS / "thinker.weights").read_bytes()
    assert (tmp_path / "thinker.onnx").stat().st_size < 300_000
    ids = prompt_ids((user("Hello"),))
    again = Thinker(StageConfig(weights=tmp_path), sight=stage._sight)._net.advance([0], [ids], [0])
    assert np.array_equal(again, stage._net.advance([0], [ids], [0]))
    _scattered(tmp_path)
    with pytest.raises(ValueError, match=r"to keep the weights of thinker\.onnx, remove"):
        regraph(tmp_path)


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
    ids = [i for chunk in chunks if isinstance(chunk, Text) for i in chunk.token_ids]
    assert all(WORD <= i < VOCABULARY or i in (TOOL, END) for i in ids)
    assert text_of(chunks).isprintable()


def test_the_built_in_clock_answers(stage: Thinker) -> None:
    chunks = answer(stage, asked("What time is it?"))
    assert text_of(chunks) == "It is 10:42."
    assert finish_of(chunks) == "stop"
    assert text_of(answer(stage, asked("What's the date today?"))) == "It is Saturday, November 21, 2026."
    assert not [chunk for chunk in chunks if isinstance(chunk, ToolCall)]


def test_a_declared_tool_is_called_and_its_result_answered(stage: Thinker) -> None:
    chunks = answer(stage, asked("What time is it?", tools=(ToolDefinition("get_time"),)))
    call, usage = chunks
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("get_time", "{}")
    assert isinstance(usage, Usage)
    assert usage.finish == "tool"
    made = Message("assistant", (ToolCallPart("get_time", "{}", call.call_id),))
    told = Message("tool", (ToolResultPart("c1", '{"time": "23:59"}'),))
    request = Request(
        id="r", session="s", messages=(user("What time is it?"), made, told), sampling=Sampling(greedy=True)
    )
    assert "23:59" in text_of(answer(stage, request))


def test_a_tool_that_may_not_be_called_is_not(stage: Thinker) -> None:
    chunks = answer(stage, asked("What time is it?", tools=(ToolDefinition("get_time"),), tool_choice="none"))
    assert text_of(chunks) == "It is 10:42."


TIMER = ToolDefinition("set_timer", parameters={"properties": {"minutes": {"type": "number"}}, "required": ["minutes"]})
WEATHER = ToolDefinition("get_weather", parameters={"properties": {"city": {"type": "string"}}, "required": ["city"]})
VALVE = ToolDefinition("open_valve", parameters={"properties": {"pressure": {"type": "number"}}})


@pytest.mark.parametrize(
    ("question", "choice", "called"),
    [
        ("Set a timer for ten minutes.", "required", {"name": "set_timer", "arguments": '{"minutes": 10}'}),
        ("What is the weather in Oslo?", "required", {"name": "get_weather", "arguments": '{"city": "Oslo"}'}),
        ("What is the weather in Oslo?", "get_weather", {"name": "get_weather", "arguments": '{"city": "Oslo"}'}),
        ("What time is it?", "get_time", {"name": "get_time", "arguments": "{}"}),
    ],
)
def test_a_tool_that_must_be_called_is(question: str, choice: str, called: dict[str, str], stage: Thinker) -> None:
    tools = (VALVE, TIMER, WEATHER, ToolDefinition("get_time"))
    call, usage = answer(stage, asked(question, tools=tools, tool_choice=choice))
    assert isinstance(call, ToolCall)
    assert {"name": call.name, "arguments": call.arguments} == called
    assert isinstance(usage, Usage)
    assert usage.finish == "tool"


@pytest.mark.parametrize(
    ("question", "choice", "why"),
    [
        ("Hello!", "required", "cannot fill in a tool's arguments"),
        ("What is twelve plus thirty?", "required", "cannot fill in a tool's arguments"),
        ("Set a timer for ten minutes.", "get_weather", "cannot fill in a tool's arguments"),
        ("What is the weather in Oslo?", "set_timer", "cannot fill in a tool's arguments"),
        ("Set a timer for ten minutes.", "open_valve", "nano cannot use any of these tools"),
        ("Set a timer for ten minutes.", "no_such_tool", "nano cannot use any of these tools"),
    ],
)
def test_a_tool_that_must_be_called_and_cannot_be_is_told_in_place_of_an_answer(
    question: str, choice: str, why: str, stage: Thinker
) -> None:
    with pytest.raises(RequestError, match=why):
        answer(stage, asked(question, tools=(VALVE, TIMER, WEATHER), tool_choice=choice))


def test_speech_that_is_not_understood_calls_no_tool(stage: Thinker) -> None:
    request = Request(id="r", session="s", messages=(), live=True, tools=(TIMER,), tool_choice="required")
    with pytest.raises(RequestError, match="did not understand"):
        answer(stage, request, heard="")


def test_the_pieces_ids_make_the_next_prompt(stage: Thinker) -> None:
    chunks = answer(stage, asked("What time is it?"))
    raw = tuple(i for chunk in chunks if isinstance(chunk, Text) for i in chunk.token_ids)
    assert raw == (*call_ids("get_time"), END)
    before = (
        user("What time is it?"),
        Message("assistant", (TextPart(text_of(chunks)),), token_ids=TokenIds(TOKENIZER, raw)),
    )
    assert prompt_ids((*before, user("thanks"))) == [*user_ids("What time is it?"), *raw, *user_ids("thanks")]


def test_unheard_speech_is_said_to_be_unheard(stage: Thinker) -> None:
    request = Request(id="r", session="s", messages=(), live=True)
    assert "catch" in text_of(answer(stage, request, heard=""))


def test_the_token_limit_ends_the_answer(stage: Thinker) -> None:
    for prompt, most, text in (
        ("What can you do?", 4, "I can see colors,"),
        ("Repeat after me: one two three four five", 4, "one two three"),  # one token is the span
    ):
        chunks = answer(stage, asked(prompt, max_text_tokens=most, dump=True))
        assert text_of(chunks) == text
        assert finish_of(chunks) == "length"
        (usage,) = only(Usage, chunks)
        assert usage.output_tokens == most
        assert list(usage.prompt_ids) == user_ids(prompt)


def test_the_token_limit_ends_what_a_tool_says(stage: Thinker) -> None:
    chunks = answer(stage, asked("Count to twenty", max_text_tokens=9))
    assert text_of(chunks).split(", ")[:3] == ["1", "2", "3"]
    assert finish_of(chunks) == "length"
    assert only(Usage, chunks)[-1].output_tokens == 9


def test_missing_or_damaged_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"thinker\.onnx"):
        Thinker(StageConfig(weights=tmp_path))
    (tmp_path / "thinker.onnx").write_bytes(b"not a model")
    with pytest.raises(WeightsError, match=r"thinker\.onnx"):
        Thinker(StageConfig(weights=tmp_path))


NOT_UNDERSTOOD = ("I don't know", "I did not", "I didn't", "Sorry", "I can't")


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_understands_the_examples_that_it_offers(stage: Thinker, example: str) -> None:
    assert not text_of(answer(stage, asked(example))).startswith(NOT_UNDERSTOOD)


def test_a_question_beyond_it_is_told_from_an_example(stage: Thinker) -> None:
    assert text_of(answer(stage, asked("Who was the third king of Bavaria?"))).startswith(NOT_UNDERSTOOD)


@pytest.mark.parametrize(
    "message",
    [
        user("a" * (MOST_CHARACTERS + 1)),
        Message("assistant", (TextPart("a " * MOST_CHARACTERS),)),
        Message("tool", (ToolResultPart("c", "9" * (MOST_CHARACTERS + 1)),)),
    ],
)
async def test_what_is_too_long_to_be_read_is_refused_before_it_is_looked_at(
    message: Message, stage: Thinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading 4 MB took seconds, in which the worker said nothing, was given up, and everybody's answer with it."""
    monkeypatch.setattr("engine.worker.models.nano.thinker.joined", None)
    with pytest.raises(ContextOverflow, match="this model can read 200000"):
        await anext(stage.adapt(StageRequest(Request(id="r", session="s", messages=(message,)), 0, OneFrame()), of(())))


async def test_instructions_of_any_length_are_taken(stage: Thinker) -> None:
    long = Message("system", (TextPart("Be kind. " * 50_000),))
    req = StageRequest(asked("Hello.", long), 0, OneFrame())
    assert await anext(stage.adapt(req, of(())))
