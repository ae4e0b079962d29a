"""What a GPU asks of the family, without one: nothing of the CPU among its tensors, no wait but at the end of a step.

It runs on a simulated device (tests/engine/worker/pretend.py), so it cannot show that a capture succeeds or how fast
it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from engine.worker.nn.cuda_graph_runner import CudaGraphRunner
from engine.worker.nn.device import to_device
from engine.worker.nn.sampler import penalised
from engine.worker.omni.encoders import Encoders
from engine.worker.talker import code2wav
from engine.worker.talker import net as talker_net
from tests.engine.worker.models.qwen3_omni.cases import PROMPTS, TONE, Folder
from tests.engine.worker.models.qwen3_omni.driven import Steps, asked, drive, stages
from tests.engine.worker.pretend import Device, pretended
from tests.oracles.talk import request

TEXTS = ("text", "bare", "history", "text")
MEDIA = ("audio", "image", "video", "audio and image")


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The voice is not warmed, which takes as long as a test's answers; with one slot, below, it is."""
    monkeypatch.setattr(code2wav, "WARM_GPU_S", 0.0)


def watch(patch: pytest.MonkeyPatch, device: Device) -> list[Counter[tuple[str, str]]]:
    """The waits inside of what a graph would capture, as they come."""
    computed = CudaGraphRunner.computed
    inside: list[Counter[tuple[str, str]]] = []

    def watched(self: CudaGraphRunner, table: torch.Tensor, bucket: int) -> torch.Tensor:
        before = len(device.waits)
        found = computed(self, table, bucket)
        inside.append(Counter(device.waits[before:]))
        return found

    patch.setattr(CudaGraphRunner, "computed", watched)
    return inside


def most(steps: Steps, stage: str) -> int:
    """How often a step of a stage waited at most."""
    return max(sum(waits.values()) for name, _, waits in steps if name == stage)


def where(steps: Steps) -> set[str]:
    """The functions that waited in any step."""
    return {at.rpartition(" ")[2] for _, _, waits in steps for _, at in waits}


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize(
    ("titles", "graphs"), [(TEXTS, True), (MEDIA, True), (MEDIA, False)], ids=["text", "media", "without graphs"]
)
def test_steps_wait_for_what_they_say_and_for_nothing_else(
    titles: tuple[str, ...], graphs: bool, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of four answers, prefill too; and what they say is what a CPU says."""
    folder = checkpoint("plain")
    plain, _ = asyncio.run(drive(stages(folder, "cpu"), asked(*titles)))
    with pretended(monkeypatch) as device:
        inside = watch(monkeypatch, device)
        found, steps = asyncio.run(drive(stages(folder, "cuda:0", graphs=graphs), asked(*titles), device))
    for one, other in zip(found, plain, strict=True):
        assert one[:2] == other[:2]
        assert np.abs(one[2] - other[2]).max() <= 1e-4
    assert not sum(inside, Counter())
    assert (len(inside) >= 10) == graphs
    known = {"_taken", "choose", "to_host", "frames", "decode"}
    assert where(steps) <= known, "hidden states, tokens, codes, sound: encoders know lengths by themselves"
    assert most(steps, "talker") == 1, "its codes"
    assert most(steps, "thinker") <= 3, "what is heard, the first tokens, and those of who goes on writing"
    assert most(steps, "code2wav") <= 3, "the sound, of each length"


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_session_goes_on_there(dtype: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was computed for it is taken over, on the device; in the dtype of real checkpoints experts are grouped."""
    turns = PROMPTS["audio"]
    first = request("a", turns, 4, 4, session="s")
    second = request("b", [*turns, ("assistant", [5, 6]), ("user", ["And now?"])], 4, 4, session="s")
    hear, heard = Encoders._hear, list[int]()
    monkeypatch.setattr(Encoders, "_hear", lambda self, mels, whole: heard.append(len(mels)) or hear(self, mels, whole))
    with pretended(monkeypatch) as device:
        inside = watch(monkeypatch, device)
        line = stages(checkpoint("deep"), "cuda:0", dtype)
        for one in (first, second):
            (answer, *_), _ = asyncio.run(drive(line, [one], device))
            assert len(answer[1]) == 4
            assert heard == [1], "once, and then it was heard before"
    assert inside
    assert not sum(inside, Counter())


@pytest.mark.usefixtures("cold")
def test_prompts_that_are_encoded_together_are_told_whole(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are taken in steps later: what was recalled of them must not be lost on the way."""
    titles, folder = ("audio", "image", "audio and image"), checkpoint("plain")
    first = [request(f"{i}", PROMPTS[title], 3, 3) for i, title in enumerate(titles)]
    more: list[Any] = [("assistant", [5, 6]), ("user", [TONE, "And now?"])]
    then = [request(f"{i}-then", [*PROMPTS[title], *more], 4, 4, session=f"{i}") for i, title in enumerate(titles)]
    line = stages(folder, "cpu", piece=32)
    plain = [asyncio.run(drive(line, asked))[0] for asked in (first, then)]
    with pretended(monkeypatch) as device:
        line = stages(folder, "cuda:0", piece=32)
        found = [asyncio.run(drive(line, asked, device))[0] for asked in (first, then)]
    for ours, theirs in zip(found, plain, strict=True):
        assert [one[:2] for one in ours] == [one[:2] for one in theirs]


@pytest.mark.usefixtures("cold")
def test_a_lost_voices_frames_are_taken_over_there_and_a_slot_is_cleared(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pretended(monkeypatch) as device:
        net: Any = stages(checkpoint("plain"), "cuda:0")[1].net  # type: ignore[attr-defined]
        device.taken()
        rows = net.follow(2, np.arange(3 * net.predictor.groups, dtype=np.int16).reshape(3, -1))
        net.forget(2)
        assert rows.shape == (2, net.width)
        assert not device.taken()


@pytest.fixture
def not_nvidias(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is one of AMD's by what torch says of itself. Apple's go the same way; this torch makes none of their
    tensors, not even pretended ones."""
    monkeypatch.setattr(torch.version, "hip", "6.4")


@pytest.mark.usefixtures("cold", "not_nvidias")
def test_a_whole_answer_on_another_gpu_takes_no_numbers_that_apples_lack(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Doubles, and complex ones: from the prompt to the sound, by the plain path."""
    titles, folder = ("text", "audio and image", "video"), checkpoint("plain")
    plain, _ = asyncio.run(drive(stages(folder, "cpu"), asked(*titles)))
    with pretended(monkeypatch) as device:
        inside, line = watch(monkeypatch, device), stages(folder, "cuda:0")
        found, _ = asyncio.run(drive(line, asked(*titles), device))
    assert not device.rare
    assert not inside, "no step is one that a graph would capture"
    assert line[0].source.kernels is None  # type: ignore[attr-defined]
    for one, other in zip(found, plain, strict=True):
        assert one[:2] == other[:2]
        assert np.abs(one[2] - other[2]).max() <= 1e-4


@pytest.mark.usefixtures("cold", "not_nvidias")
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_numbers_that_apples_gpus_lack_would_show(
    dtype: torch.dtype, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""

    def planted(logits: torch.Tensor, *_: Any) -> torch.Tensor:
        return logits.to(dtype).abs().float()

    monkeypatch.setattr(talker_net, "penalised", planted)
    with pretended(monkeypatch) as device:
        asyncio.run(drive(stages(checkpoint("plain"), "cuda:0"), [request("r", PROMPTS["bare"], 2, 2)], device))
    assert {where.rpartition(" ")[2] for _, where in device.rare} == {"planted"}
    assert any(what.endswith(str(dtype)) for what, _ in device.rare)


@pytest.mark.parametrize("fault", ["a question", "a number of the host", "an index of the host", "a mask"])
def test_a_wait_in_a_step_would_show(fault: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative controls."""

    def planted(logits: torch.Tensor, seen: torch.Tensor, penalty: float) -> torch.Tensor:
        match fault:
            case "a question":
                assert logits.amax().item() < 1e9
            case "a number of the host":
                seen[to_device([0], seen.device), 0] = False
            case "an index of the host":
                seen = seen[torch.arange(len(seen))]
            case _:
                seen[~seen] = seen[~seen]
        return penalised(logits, seen, penalty)

    short = request("r", PROMPTS["bare"], 2, 2)
    monkeypatch.setattr(talker_net, "penalised", planted)
    with pretended(monkeypatch) as device:
        inside = watch(monkeypatch, device)
        asyncio.run(drive(stages(checkpoint("plain"), "cuda:0", slots=1), [short], device))
    found = sum(inside, Counter())
    assert found
    assert {where.rpartition(" ")[2] for _, where in found} == {"planted"}


def test_a_tensor_of_the_host_in_a_step_would_show(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    short = request("r", PROMPTS["bare"], 2, 2)
    monkeypatch.setattr(talker_net, "penalised", lambda logits, *_: logits + torch.zeros(logits.shape[1]))
    with pretended(monkeypatch) as device, pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="same device")):
        asyncio.run(drive(stages(checkpoint("plain"), "cuda:0", slots=1), [short], device))
