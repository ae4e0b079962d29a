"""Whole answers with kernels are those without: of a full checkpoint, of a quantized one, and in a shared cache."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.quantize import quantize
from engine.worker.nn import cuda_graph_runner
from engine.worker.nn.kernel_loading import Kernels
from tests.engine.worker.models.qwen3_omni.cases import Folder
from tests.engine.worker.models.qwen3_omni.driven import asked, drive, stages

pytestmark = [pytest.mark.triton, pytest.mark.kernels, pytest.mark.timeout(900)]


class Counted:
    """How often each kernel was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kernels: Kernels) -> None:
        self.calls: dict[str, int] = dict.fromkeys(
            ("attend", "experts", "add_norm", "place", "route", "swiglu", "varlen"), 0
        )
        for name in self.calls:
            self._count(monkeypatch, name, type(kernels))

    def _count(self, monkeypatch: pytest.MonkeyPatch, name: str, kind: Any) -> None:
        launch = getattr(kind, name)

        def counting(*args: Any) -> Any:
            self.calls[name] += 1
            return launch(*args)

        is_static = isinstance(vars(kind)[name], staticmethod)
        monkeypatch.setattr(kind, name, staticmethod(counting) if is_static else counting)


@pytest.mark.parametrize("kind", ["full", "int4", "shared"])
def test_answers(
    kind: str, checkpoint: Folder, tmp_path: Path, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graph_runner, "SHORTEST", 32)
    monkeypatch.setattr(import_module("engine.worker.kernels.decode_attention"), "SPLIT", 1024)  # fewer empty ones
    folder: Any = checkpoint("plain")
    if kind == "int4":
        quantize(folder, tmp_path / "int4", 4, 8, lambda line: None)
        folder = tmp_path / "int4"
    more: dict[str, Any] = {"context": 256, "cache_tokens": 400 if kind == "shared" else None}
    counted = Counted(monkeypatch, kernels)
    plain, _ = asyncio.run(drive(stages(folder, "cpu", graphs=True, **more), asked("text", "audio")))
    assert not any(counted.calls.values())
    line: Any = stages(folder, "cpu", graphs=True, kernels=True, **more)
    found, _ = asyncio.run(drive(line, asked("text", "audio")))
    for one, other in zip(found, plain, strict=True):
        assert one[:2] == other[:2]
        assert np.abs(one[2] - other[2]).max() <= 1e-4
    assert min(counted.calls[name] for name in ("attend", "add_norm", "place", "route", "swiglu")) > 20
    assert counted.calls["varlen"], "prompts of several lengths come in together"
    assert bool(counted.calls["experts"]) == (kind == "int4")
    for stage in line[:2]:
        assert len(stage.net.graphs.context_buckets) == 1, "one graph of each size serves every length"
