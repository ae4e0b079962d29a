"""Qwen3-Omni's tiny checkpoints on a CUDA device: what a CPU says, as graphs and without, alone and together."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import Request, Sampling
from engine.quantize import quantize
from engine.worker.nn import cuda_graph_runner, predictor
from engine.worker.nn.decode_batch import DecodeInput
from engine.worker.nn.device import to_device
from engine.worker.nn.sampling_params import SamplingParams
from engine.worker.omni import thinker_net
from engine.worker.talker import net as talker_net
from tests.engine.worker.models.qwen3_omni.cases import PROMPTS, Folder
from tests.engine.worker.models.qwen3_omni.driven import drive, stages
from tests.oracles.talk import request

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

DEVICE = "cuda:0"
CLOSE = 1e-4  # where the two best are nearer, either is right
NETS = (thinker_net, talker_net, predictor)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few graphs at the start; float32 as such."""
    monkeypatch.setattr(cuda_graph_runner, "WARM_S", 0.0)
    monkeypatch.setattr(cuda_graph_runner, "SHORTEST", 64)
    assert not torch.backends.cuda.matmul.allow_tf32


def answers(line: Any, asked: Sequence[Request]) -> Any:
    return asyncio.run(drive(line, asked))[0]


def asked(count: int, again: str = "") -> list[Request]:
    titles = list(PROMPTS)
    return [
        request(
            f"{i}{again}", PROMPTS[titles[i % len(titles)]], 4 + i % 5, 5 + i % 6,
            sampling=Sampling(greedy=i % 2 == 0, temperature=1.0, seed=i),
        )
        for i in range(count)
    ]  # fmt: skip


def noted(patch: pytest.MonkeyPatch, note: Callable[[int, torch.Tensor], object]) -> None:
    """Call with every draw's stage and logits."""
    draw = thinker_net.draw

    def noting(logits: torch.Tensor, draws: Any, stage: int, *more: Any) -> Any:
        note(stage, logits)
        return draw(logits, draws, stage, *more)

    for module in NETS:
        patch.setattr(module, "draw", noting)


@pytest.mark.parametrize("name", ["plain", "wide", "deep"])
@pytest.mark.parametrize("graphs", ["auto", "off"])
def test_greedy_answers_are_those_of_a_cpu(
    name: str, graphs: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32, up to the first step at which the CPU's own choice hung by a thread."""
    ours = stages(checkpoint(name), DEVICE, graphs=graphs)
    theirs, compared = stages(checkpoint(name), "cpu"), 0
    for title, turns in PROMPTS.items():
        one = request(title, turns, 6, 8)
        gaps: dict[int, list[float]] = {0: [], 1: [], 2: []}

        def gap(stage: int, logits: torch.Tensor, gaps: dict[int, list[float]] = gaps) -> None:
            best = logits.float().topk(2, -1).values[0]
            gaps[stage].append(float(best[0] - best[1]))

        with monkeypatch.context() as patched:
            noted(patched, gap)
            ((ids, codes, wave),) = answers(theirs, [one])
        ((said, spoken, sound),) = answers(ours, [one])
        words = _sure(gaps[0])
        passes = len(codes[0]) - 1
        frames = min(_sure(gaps[1]), _sure(gaps[2]) // passes) if words == len(gaps[0]) else 0
        assert said[:words] == ids[:words], title
        assert spoken[:frames] == codes[:frames], title
        if spoken == codes:
            assert np.abs(sound - wave).max() <= 1e-3, title
        compared += frames
    assert compared >= 40, "nearly all steps are sure"


def _sure(gaps: Sequence[float]) -> int:
    return next((i for i, gap in enumerate(gaps) if gap < CLOSE), len(gaps))


def alike(some: Sequence[Any], others: Sequence[Any]) -> int:
    return sum(one[:2] == other[:2] for one, other in zip(some, others, strict=True))


def test_graphs_say_what_kernels_say(checkpoint: Folder) -> None:
    """Six together, greedy and drawn; rounding may tip one draw."""
    folder = checkpoint("plain")
    line = stages(folder, DEVICE, graphs="auto")
    graphs = answers(line, asked(6))
    assert alike(graphs, answers(stages(folder, DEVICE, graphs="off"), asked(6))) >= 5
    captured = [one for stage in line[:2] for one in stage.net.graphs.captured.graphs.values()]  # type: ignore[attr-defined]
    assert captured
    assert None not in captured


@pytest.mark.parametrize("kind", ["full", "int4", "shared"])
def test_kernels_in_triton_say_what_plain_steps_say(kind: str, checkpoint: Folder, tmp_path: Path) -> None:
    folder: Any = checkpoint("plain")
    if kind == "int4":
        quantize(folder, tmp_path / "int4", 4, 8, lambda line: None)
        folder = tmp_path / "int4"
    more: dict[str, Any] = {"context": 512, "cache_tokens": 640} if kind == "shared" else {}
    plain = answers(stages(folder, DEVICE, slots=8, **more), asked(8))
    line = stages(folder, DEVICE, slots=8, kernels=True, **more)
    assert alike(answers(line, asked(8)), plain) >= 7
    captured = [one for stage in line[:2] for one in stage.net.graphs.captured.graphs.values()]  # type: ignore[attr-defined]
    assert captured
    assert None not in captured


def test_sixteen_interleaved_answers_are_those_they_would_be_alone(checkpoint: Folder) -> None:
    line = stages(checkpoint("deep"), DEVICE, slots=16)
    together = answers(line, asked(16))
    alone = [answers(line, [one])[0] for one in asked(16, "-alone")]
    assert alike(together, alone) >= 15


@pytest.mark.parametrize("graphs", ["auto", "off"])
def test_requests_that_share_a_cache_say_what_each_says_in_a_full_context(graphs: str, checkpoint: Folder) -> None:
    """Some wait for room, and slots move under graphs that were captured before."""
    folder = checkpoint("deep")
    full = answers(stages(folder, DEVICE, slots=8, context=512, graphs=graphs), asked(8))
    line = stages(folder, DEVICE, slots=8, context=512, cache_tokens=640, graphs=graphs)
    moved = list[Any]()
    for stage in line[:2]:
        cache: Any = stage.net.cache  # type: ignore[attr-defined]
        move = cache._move
        cache._move = lambda one, move=move: moved.append(one) or move(one)
    assert alike(answers(line, asked(8)), full) >= 7
    assert moved


def test_bfloat16_stays_near_a_cpus_float32(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first logits of the thinker, and of a talker that is told what to say."""
    first: dict[str, dict[int, torch.Tensor]] = {}
    for device, dtype in (("cpu", "float32"), (DEVICE, "bfloat16")):
        line, found = stages(checkpoint("wide"), device, dtype), first.setdefault(device, {})
        with monkeypatch.context() as patched:
            noted(patched, lambda stage, logits, found=found: found.setdefault(stage, logits[0].float().cpu()))
            if device != "cpu":
                for stage in line[:2]:
                    stage.net.graphs = None  # type: ignore[attr-defined]  # while one is captured nothing is read
            answers(line, [request("t", PROMPTS["audio and image"], 2, 2)])
            del found[1]  # it may have been told another word
            answers(line, [request("s", PROMPTS["text"], 8, 2, say="Hello there, how are you?")])
    for stage in (0, 1):
        ours, theirs = first[DEVICE][stage], first["cpu"][stage]
        finite = theirs.isfinite()
        assert (ours - theirs)[finite].abs().max() <= 0.15, stage


@contextmanager
def no_synchronization() -> Iterator[None]:
    """Make every call that waits for the device an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns once that this mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_replay_waits_for_nothing_but_its_end(checkpoint: Folder) -> None:
    line = stages(checkpoint("plain"), DEVICE)
    for stage in line[:2]:
        graphs: Any = stage.net.graphs  # type: ignore[attr-defined]
        inputs = [DecodeInput(slot, 9, 7, 3, 9.0, SamplingParams(slot)) for slot in range(3)]
        with torch.inference_mode():
            before = graphs(inputs)
            with no_synchronization():
                again = graphs(inputs)
        assert [graph for (size, _), graph in graphs.captured.graphs.items() if size == 4] != [None]
        assert before.shape == again.shape


def test_prompts_sounds_and_codec_frames_are_graphs_too(checkpoint: Folder) -> None:
    """Of prompts, what asks the device in float32 alone is none: experts of more rows than are gathered."""
    line: Any = stages(checkpoint("plain"), DEVICE)
    answers(line, asked(6))
    thinker, talker, code2wav = line
    for captured in (thinker.net.prefills, talker.net.prefills, thinker.encoders.ears, code2wav):
        graphs = captured._captured.graphs
        assert {key for key, graph in graphs.items() if graph is None} <= {1024, 2048}
        assert len(graphs) >= 3


def test_memory_comes_back(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph_runner, "WARM_S", 120.0)  # no graph is captured later
    line = stages(checkpoint("plain"), DEVICE, remember_mb=0)
    taken: list[int] = []
    for number in range(3):
        answers(line, asked(6, f"-{number}"))
        torch.cuda.synchronize()
        taken.append(torch.cuda.memory_allocated())
    assert taken[1] == taken[2]


def test_values_reach_the_device_as_they_are() -> None:
    assert to_device([2**62 + 1, -5], torch.device(DEVICE)).tolist() == [2**62 + 1, -5]
    assert to_device(np.array([0.1, 4096.5]), torch.device(DEVICE)).tolist() == [0.1, 4096.5]


def test_a_question_inside_a_step_is_no_graph_and_an_answer_all_the_same(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The negative control, and the last test: what cannot be captured is said, and computed kernel by kernel."""
    sane = answers(stages(checkpoint("plain"), DEVICE), asked(2))
    penalised = talker_net.penalised

    def asking(logits: torch.Tensor, *more: Any) -> torch.Tensor:
        assert logits.abs().amax().item() < 1e9
        return penalised(logits, *more)

    monkeypatch.setattr(talker_net, "penalised", asking)
    line = stages(checkpoint("plain"), DEVICE)
    assert alike(answers(line, asked(2)), sane) == 2
    assert set(line[1].net.graphs.captured.graphs.values()) == {None}  # type: ignore[attr-defined]
    assert "are not captured" in caplog.text
