"""A language model that talks sense, through each thinker that runs it: the same words as transformers computes.

The tiny model that was trained from nano's dialogues, asked over the WebSocket; `make conformance` runs this. Whoever
adds a thinker adds how it is served to ``THINKERS``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from app.commands.deployment import Parts, deployment
from engine import Engine, EngineSpec, StageSpec, Text, WorkerSpec
from engine.chunk import Output, Usage
from engine.core import IN_WRITING
from engine.stream import of
from engine.training.nano.dialogues import answers_rightly
from engine.training.nano.turns import Turn
from engine.training.tiny_llm.train import exchanges, learned_questions
from engine.worker.llm.llama import Llama
from engine.worker.stage import StageConfig
from engine.worker.stages.llm import llamacpp
from tests.app.rig import Running, eventually, running, talking
from tests.conformance import tiny_llm, vllm_environment
from tests.engine.fakes import only, request
from tests.engine.worker.llm.gguf_files import counting, write_model

AT_ONCE = 8
DIALOGUES = 50
RIGHT = 0.80
CLOSE = 1e-3
"""Where the two likeliest tokens lie so near to each other, rounding may choose."""
MOST_CLOSE = 0.01
READY_S = 240.0
"""vLLM is imported in three processes, one after the other: most of a minute where nothing else runs."""
OPTIONS = {"temperature": 0.0, "repeat_penalty": 1.0, "instructions_suffix": ""}
"""The model knows no instructions; llama.cpp would write them into what the user says."""

Messages = Sequence[dict[str, str]]
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(tiny_llm.MAKE_S + 300)]


@dataclass
class Served:
    """A thinker that runs a model."""

    stage: StageSpec
    complete: Callable[[dict[str, Any]], Any]
    """A chat completion, asked of what runs the model itself."""
    processing: Callable[[], int]
    """How many answers are computed there now."""
    python: str | None = None
    """The interpreter of its worker, which is a process then."""
    go_on: Callable[[str, list[str]], list[str]] = lambda question, pieces: []
    """The pieces of an answer, where so many of them had been given by a worker that was lost."""

    def ids(self, messages: Messages) -> list[int]:
        """The tokens of an answer, the one that ends it among them."""
        body = {"messages": messages, "temperature": 0, "logprobs": True, "top_logprobs": 1, "max_tokens": 200}
        return [token["id"] for token in self.complete(body)["choices"][0]["logprobs"]["content"]]


Serve = Callable[[Path], AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def in_process(file: Path) -> AsyncGenerator[Served]:
    """`llm.llamacpp`. The worker is a task of this process, so that its llama.cpp can be asked."""
    made: list[Any] = []

    class Seen(Llama):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    stage = StageSpec(
        use="llm.llamacpp", name="thinker", weights=str(file), max_batch=AT_ONCE,
        options={"cache_type": "f32", **OPTIONS},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(llamacpp, "Llama", Seen)
        yield Served(stage, lambda body: made[-1]._server.handle_chat_completions(body), lambda: made[-1].processing)


@asynccontextmanager
async def by_llamacpps_server(file: Path) -> AsyncGenerator[Served]:
    """`llm.openai`, with llama.cpp's server behind it."""
    with tiny_llm.served(file) as url, httpx2.Client(base_url=url) as http:
        stage = StageSpec(
            use="llm.openai", name="thinker", max_batch=AT_ONCE,
            options={"url": f"{url}/v1", "model": "tiny", "context": 1024, **OPTIONS},
        )  # fmt: skip

        def processing() -> int:
            lines = http.get("/metrics").text.splitlines()
            [count] = [line for line in lines if line.startswith("llamacpp:requests_processing ")]
            return int(count.split()[1])

        yield Served(stage, lambda body: http.post("/v1/chat/completions", json=body).json(), processing)


@asynccontextmanager
async def by_vllm(file: Path) -> AsyncGenerator[Served]:
    """`llm.vllm`, with the checkpoint that the file was made of. Its worker lets itself be asked."""
    if not vllm_environment.PYTHON.exists():
        pytest.skip("vLLM has no environment here: make vllm")
    with vllm_environment.asked() as (use, asked):
        stage = StageSpec(
            use=use, name="thinker", weights=str(tiny_llm.checkpoint(file)), max_batch=AT_ONCE,
            options={"context": 1024, **OPTIONS},
        )  # fmt: skip

        def complete(body: dict[str, Any]) -> Any:
            [choice] = asked({"complete": {**body, "return_token_ids": True}})["choices"]
            content = [{"id": id} for id in choice["token_ids"]]
            return {"choices": [{"logprobs": {"content": content}}]}

        yield Served(
            stage, complete,
            processing=lambda: asked({"processing": True}), python=str(vllm_environment.PYTHON),
            go_on=lambda question, pieces: asked({"go_on": question, "behind": pieces}),
        )  # fmt: skip


THINKERS = [
    pytest.param(in_process, id="llm.llamacpp"),
    pytest.param(by_llamacpps_server, id="llm.openai"),
    pytest.param(by_vllm, id="llm.vllm"),
]


@asynccontextmanager
async def serving(served: Served) -> AsyncGenerator[Running]:
    """A server with this thinker, and the scripted family's ears and voice."""
    async with running(spec_of(served), ready_s=READY_S) as server:
        yield server
        await server.empty()


def spec_of(served: Served) -> EngineSpec:
    whole = deployment("script", parts=Parts(thinker="llamacpp"))
    stages = tuple(served.stage if stage.name == "thinker" else stage for stage in whole.stages)
    patient = dataclasses.replace(whole.heartbeat, timeout_s=20.0)
    workers, launcher = whole.workers, "inline"
    if served.python is not None:
        others = tuple(stage.name for stage in stages if stage.name != "thinker")
        workers = (WorkerSpec(stages=("thinker",), python=served.python), WorkerSpec(stages=others))
        launcher = "local"
    return dataclasses.replace(
        whole, stages=stages, workers=workers, launcher=launcher, server={"host": "127.0.0.1", "port": 0},
        heartbeat=patient,
    )  # fmt: skip


def held_out() -> list[list[Turn]]:
    """Dialogues whose questions were never asked in the training."""
    learned = learned_questions()
    drawn = (turns for turns in exchanges(random.Random(4711)) if not {turn.request.text for turn in turns} & learned)
    return list(itertools.islice(drawn, DIALOGUES))


async def talked(server: Running, turns: Sequence[Turn]) -> list[str]:
    """The answers to a dialogue's questions, one after the other in a session of its own."""
    async with talking(server) as client:
        responses = [await client.ask(turn.request.text, output_modalities=["text"]) for turn in turns]
    assert {response["status"] for response in responses} == {"completed"}
    return [response["output"][0]["content"][0]["text"] for response in responses]


def conversations(turns: Sequence[Turn], answers: Sequence[str]) -> list[list[dict[str, str]]]:
    """What the model was asked for each of the answers."""
    messages: list[dict[str, str]] = []
    whole: list[list[dict[str, str]]] = []
    for turn, answer in zip(turns, answers, strict=True):
        messages.append({"role": "user", "content": turn.request.text})
        whole.append([*messages])
        messages.append({"role": "assistant", "content": answer})
    return whole


class Oracle:
    """transformers, with the checkpoint that the file was made of."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer, LlamaForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()  # it leaves a thread behind
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model: Any = LlamaForCausalLM.from_pretrained(folder)

    def text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def judge(self, messages: Messages, ids: Sequence[int]) -> tuple[list[int], int]:
        """The steps of an answer at which another token is clearly likelier, and how many are too close to say."""
        import torch

        prompt = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        with torch.inference_mode():
            logits = self._model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
        (best, second), chosen = logits.topk(2).values.T, torch.tensor(ids)
        close = best - second < CLOSE
        wrong = (logits.argmax(-1) != chosen) & ~close
        return wrong.nonzero().flatten().tolist(), int(close.sum())


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(tiny_llm.checkpoint(tiny_llm.model_file()))


@pytest.mark.parametrize("serve", THINKERS)
async def test_fifty_dialogues_are_what_transformers_computes_and_make_sense(serve: Serve, oracle: Oracle) -> None:
    wrong: list[str] = []
    steps = close = right = 0
    dialogues = held_out()
    async with serve(tiny_llm.model_file()) as served, serving(served) as server:
        for turns in dialogues:
            answers = await talked(server, turns)
            for turn, answer, messages in zip(turns, answers, conversations(turns, answers), strict=True):
                ids = await asyncio.to_thread(served.ids, messages)
                off, near = oracle.judge(messages, ids)
                if off or (near == 0 and oracle.text(ids) != answer):
                    wrong.append(f"{turn.request.text!r} -> {answer!r}, differs at {off}: {oracle.text(ids)!r}")
                steps, close = steps + len(ids), close + near
                right += answers_rightly(turn.request.expect, answer)
    total = sum(map(len, dialogues))
    print(f"{len(dialogues)} dialogues, {total} answers: {right / total:.0%} right; {steps} steps, {close} too close")
    assert not wrong, "\n".join(wrong)
    assert close <= MOST_CLOSE * steps
    assert right >= RIGHT * total


@pytest.mark.parametrize("serve", THINKERS)
async def test_eight_at_once_say_what_each_says_alone(serve: Serve) -> None:
    dialogues = held_out()[: 2 * AT_ONCE]
    async with serve(tiny_llm.model_file()) as served, serving(served) as server:
        alone = [await talked(server, turns) for turns in dialogues]
        for n in range(0, len(dialogues), AT_ONCE):
            together = await asyncio.gather(*(talked(server, turns) for turns in dialogues[n : n + AT_ONCE]))
            assert list(together) == alone[n : n + AT_ONCE]


@pytest.mark.parametrize("serve", THINKERS)
async def test_an_answer_that_is_cancelled_ends_in_the_engine_behind_it(serve: Serve, tmp_path: Path) -> None:
    endless = write_model(tmp_path / "counting.gguf", counting())
    vllm_environment.write_endless(tiny_llm.checkpoint(tiny_llm.model_file()), tiny_llm.checkpoint(endless))
    async with serve(endless) as served, serving(served) as server, talking(server) as client:
        for _ in range(10):
            await (await client.say("Count.")).send("response.create", response={"output_modalities": ["text"]})
            await client.until("response.output_text.delta")
            assert served.processing() == 1
            await client.send("response.cancel")
            response = (await client.until("response.done"))["response"]
            assert response["status"] == "cancelled"
            await eventually(lambda: served.processing() == 0)


async def test_a_models_file_goes_on_behind_every_beginning_of_an_answer() -> None:
    """As where its worker was lost: what follows is what would have followed."""
    options = {"cache_type": "f32", **OPTIONS}
    stage = llamacpp.LlamaCppStage(StageConfig(weights=tiny_llm.model_file(), slots=1, options=options))

    async def texts(question: str, kept: Sequence[Text] = ()) -> list[Text]:
        answer = stage.answer(request(question), of(()), kept)
        return [chunk async for chunk in answer if isinstance(chunk, Text)]

    for turns in held_out()[:10]:
        whole = await texts(turns[0].request.text)
        for count in range(1, len(whole) + 1):
            again = await texts(turns[0].request.text, whole[:count])
            assert "".join(piece.text for piece in again) == "".join(piece.text for piece in whole)
    await stage.aclose()


async def test_vllm_goes_on_behind_every_beginning_of_an_answer() -> None:
    """The same, in its worker."""
    async with by_vllm(tiny_llm.model_file()) as served, Engine(alone(served)):
        for turns in held_out()[:5]:
            question = turns[0].request.text
            whole = await asyncio.to_thread(served.go_on, question, [])
            for count in range(1, len(whole) + 1):
                again = await asyncio.to_thread(served.go_on, question, whole[:count])
                assert again[:count] == whole[:count]
                assert "".join(again) == "".join(whole)


async def test_an_answer_goes_on_where_vllms_engine_was_killed_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    endless = tmp_path / "counting.gguf"
    vllm_environment.write_endless(tiny_llm.checkpoint(tiny_llm.model_file()), tiny_llm.checkpoint(endless))
    async with by_vllm(endless) as served, Engine(alone(served)) as rig:
        processes = vllm_processes()
        got: list[Output] = []
        async with rig.open(request("Count.", wants=IN_WRITING, max_text_tokens=400)) as chunks:
            got.append(await anext(chunks))
            next(one for one in processes if "EngineCor" in one.name()).kill()
            got += [chunk async for chunk in chunks]
        texts = only(Text, got)
        assert all(before.end == after.start for before, after in itertools.pairwise(texts)), "nothing twice, no gap"
        [usage] = only(Usage, got)
        assert (usage.output_tokens, usage.finish) == (400, "length")
        assert not any(one.is_running() for one in processes)
        again = vllm_processes()
        next(one for one in again if "EngineCor" in one.name()).parent().kill()
        await eventually(lambda: not any(one.is_running() for one in again))


def vllm_processes() -> list[Any]:
    """Those of the workers of this process."""
    return [one for one in psutil.Process().children(recursive=True) if one.name().startswith("VLLM::")]


def alone(served: Served) -> EngineSpec:
    """A deployment of this thinker alone, which is waited for where it is started anew."""
    return EngineSpec(
        name="tiny", stages=(served.stage,), workers=(WorkerSpec(stages=("thinker",), python=served.python),),
        empty_s=READY_S, stall_s=READY_S, start_s=READY_S,
    )  # fmt: skip
