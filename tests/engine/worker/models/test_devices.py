"""A device that cannot be used, that others hold, or that is lost: one sentence before anything is loaded.

No GPU is here: torch says what it would say there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine import ChunkSpec, ConfigError, StageSpec, WeightsError, WorkerSpec
from engine.ipc import messages
from engine.worker.models.qwen3_omni import source
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.models.qwen3_omni.thinker import Thinker
from engine.worker.nn import memory as planning
from engine.worker.nn.captured import Captured
from engine.worker.nn.decode_batch import DecodeBatch, DecodeInput, packed
from engine.worker.nn.device import answers, check, has_graphs, nvidia_capability
from engine.worker.nn.moe import has_grouped
from engine.worker.nn.sampling_params import SamplingParams
from engine.worker.omni.source import OmniSource
from engine.worker.process import stage_loader
from engine.worker.stage import StageConfig
from tests.engine.worker.models.qwen3_omni.cases import Folder

BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable\nSearch for `cudaErrorDevicesUnavailable'\n"
OFF_THE_BUS = "CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported"
OLD_DRIVER = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver."


def torch_says(patch: pytest.MonkeyPatch, error: Exception) -> None:
    def ones(*_: Any, **__: Any) -> Any:
        raise error

    patch.setattr(torch, "ones", ones)


@pytest.mark.parametrize("said", [BUSY, OFF_THE_BUS, OLD_DRIVER])
def test_a_device_that_cannot_be_used_is_one_sentence(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch_says(monkeypatch, torch.AcceleratorError(said) if said.startswith("CUDA") else RuntimeError(said))
    with pytest.raises(ConfigError) as raised:
        check("cuda:0")
    reason = str(raised.value)
    assert reason.startswith(f"The device cuda:0 cannot be used: {said.splitlines()[0].rstrip('.')}. ")
    assert "Another process may be using it" in reason
    assert "\n" not in reason
    assert not answers("cuda:0")


@pytest.mark.parametrize("device", ["cuda:0", "mps", "gpu"])
def test_a_device_that_torch_does_not_have_is_one_sentence(device: str) -> None:
    with pytest.raises(ConfigError, match=f"The device {device} cannot be used: "):
        check(device)


def test_a_device_that_is_full_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """How little is left is told beside what is needed, and a step that runs out of memory loses no device."""
    for error in (torch.OutOfMemoryError("CUDA out of memory"), torch.AcceleratorError("CUDA error: out of memory")):
        torch_says(monkeypatch, error)
        assert answers("cuda:0")
        assert answers("cpu")


def task(folder: Path, device: str = "cuda:0", name: str = "thinker", **options: Any) -> messages.Task:
    stages = (StageSpec(use=f"qwen3_omni.{name}", name=name, weights=str(folder), options=options),)
    return messages.Task("w", stages, WorkerSpec(stages=(name,), max_batch=2), device, ChunkSpec(), 1.0)


def build(task: messages.Task) -> Any:
    return stage_loader.build(task, lambda message: None)


def test_a_device_that_others_hold_is_told_before_anything_is_loaded(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.worker.nn.device.check", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1_000_000_000, 85_000_000_000))
    with pytest.raises(WeightsError) as raised:
        build(task(checkpoint("plain")))
    assert "cuda:0 has 1.0 GB free of 85.0 because other processes use the rest, but thinker need" in str(raised.value)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1_000_000_000, 1_000_000_000))
    with pytest.raises(WeightsError, match=r"cuda:0 has 1\.0 GB free, but thinker need"):
        build(task(checkpoint("plain")))


def test_what_cannot_be_used_is_told_before_it_is_planned_or_loaded(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "check_room", lambda *_: pytest.fail("it was planned"))
    with pytest.raises(ConfigError, match="The device cuda:0 cannot be used"):
        build(task(checkpoint("plain")))


def capturing(patch: pytest.MonkeyPatch, capture: Any) -> None:
    """Have graphs captured where there are none, by what stands for it."""
    made = Captured.__init__

    def init(self: Captured, *args: Any, **named: Any) -> None:
        made(self, *args, **named)
        self.captures = True

    patch.setattr(Captured, "__init__", init)
    patch.setattr(Captured, "_capture", capture)
    patch.setattr(torch.cuda, "memory_reserved", lambda _: 0)


@pytest.mark.parametrize(("when", "stage"), [("loading", "thinker"), ("warming", "thinker"), ("warming", "code2wav")])
def test_another_process_that_takes_the_memory_meanwhile_is_one_sentence(
    when: str, stage: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that start at once each see all of it free. What is left may do for weights, and not for graphs."""

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nSee documentation")

    if when == "loading":
        monkeypatch.setattr(OmniSource, "reader", full)
    else:
        monkeypatch.setattr("engine.worker.talker.code2wav.WARM_S", 60.0)
        capturing(monkeypatch, full)
    with pytest.raises(WeightsError) as raised:
        build(task(checkpoint("plain"), "cpu", stage, graphs="on"))
    assert str(raised.value).startswith(f"The device cpu ran out of memory while {stage} was loaded. Another process")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", [Thinker, Talker])
def test_stages_go_on_behind_what_was_given_where_they_are_on_no_processor(kind: Any, checkpoint: Folder) -> None:
    """Also in float32; ``meta`` stands for a device here."""
    config = stage_loader.StageConfig(weights=checkpoint("plain"))
    assert [kind.describe(replace(config, device=one)).replay for one in ("cpu", "meta")] == ["exact", "continue"]


def test_a_worker_asks_the_device_that_its_stages_compute_on(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One on a processor asks nothing; ``meta`` stands for a device here."""
    asked: list[str] = []
    monkeypatch.setattr("engine.worker.nn.device.check", asked.append)
    monkeypatch.setattr("engine.worker.nn.device.answers", lambda device: bool(asked.append(f"again {device}")))
    make, config = stage_loader.make, stage_loader.StageConfig()
    monkeypatch.setattr(
        stage_loader, "make", lambda use, name, order, place: make("script.thinker", name, order, config)
    )
    worker, _ = build(task(checkpoint("plain"), "meta"))
    assert not worker._device_answers()
    assert asked == ["meta", "again meta"]
    worker, _ = build(task(checkpoint("plain"), "cpu"))
    assert worker._device_answers()
    assert len(asked) == 2


class NoDoubles(TorchDispatchMode):
    """A device like Apple's, which has no numbers of 64 bits with a point."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        assert not isinstance(found, torch.Tensor) or found.dtype != torch.float64, "this device has no doubles"
        return found


def test_the_table_of_a_step_needs_no_doubles() -> None:
    table = torch.from_numpy(packed([DecodeInput(0, 5, 7, 2, 4097.3, SamplingParams(3, False, 0.7, 20, 0.95))]))
    with NoDoubles():
        found = DecodeBatch.of(table, 20)
        with pytest.raises(AssertionError, match="no doubles"):
            table.view(torch.float64)
    assert found.positions.equal(torch.tensor([4097.3]))
    assert found.params.temperature.equal(torch.tensor([[0.7]]))
    assert found.params.top_p.equal(torch.tensor([[0.95]]))


def test_only_nvidias_devices_have_its_capabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch calls AMD's GPUs by the same name, and numbers an MI300 as it does a Hopper: 9."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 4))
    assert nvidia_capability(torch.device("cuda:0")) == 9
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert nvidia_capability(torch.device("cuda:0")) == 0
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: pytest.fail("it is another device"))
    assert nvidia_capability(torch.device("mps")) == 0
    has_grouped.cache_clear()
    assert not has_grouped(torch.device("mps"), torch.bfloat16)


def test_graphs_are_for_nvidias_devices_alone(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """AMD's go by the same name; ``options.graphs`` may ask for them there all the same."""
    monkeypatch.setattr(torch.version, "hip", None)
    assert [has_graphs(torch.device(device)) for device in ("cuda:1", "cpu", "mps")] == [True, False, False]
    folder, plain = checkpoint("plain"), {"kernels": "off"}
    assert source.Qwen3OmniSource(StageConfig(folder, "cuda:0", options=plain)).static
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert not has_graphs(torch.device("cuda:0"))
    assert not source.Qwen3OmniSource(StageConfig(folder, "cuda:0", options=plain)).static
    assert source.Qwen3OmniSource(StageConfig(folder, "cuda:0", options=plain | {"graphs": "on"})).static
