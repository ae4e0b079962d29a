"""Who gets kernels, and what is said to those who can't have them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.errors import ConfigError
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.nn import kernel_loading
from engine.worker.nn.kernel_loading import Kernels, chosen, load
from engine.worker.stage import StageConfig
from tests.engine.worker.models.conftest import checkpoint
from tests.engine.worker.models.qwen3_omni.cases import Folder

__all__ = ["checkpoint"]

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
ROOT = Path(__file__).parents[4]


def test_without_triton_one_sentence_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_loading, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"options\.kernels: the package triton is not installed\. .* or remove the op"
    ):
        load(GPU)


@pytest.mark.triton
def test_a_device_that_cannot_run_them_is_told(monkeypatch: pytest.MonkeyPatch, kernels: Kernels) -> None:
    assert type(load(CPU)) is type(kernels), "interpreted"
    assert load(torch.device("meta")), "memory is planned before anybody asks the device"
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(
        ConfigError, match=r"the kernels need a CUDA device, but this stage runs on cpu\. Remove the option"
    ):
        load(CPU)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(ConfigError, match=r"has compute capability 7\.5, but the kernels need 8\.0"):
        load(GPU)
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    assert load(GPU)


def test_the_option_is_on_where_a_gpu_of_nvidias_has_them(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint("plain")
    assert Qwen3OmniSource(StageConfig(folder)).kernels is None, "a CPU has none, also where they may be interpreted"
    monkeypatch.setattr(kernel_loading, "load", lambda device: "loaded")
    monkeypatch.setattr(kernel_loading, "find_spec", lambda name: name)
    monkeypatch.setenv("CC", "cc")
    for capability, wanted, found in ((9, "auto", "loaded"), (8, "off", None), (7, "auto", None), (0, "on", "loaded")):
        monkeypatch.setattr(kernel_loading, "nvidia_capability", lambda device, capability=capability: capability)
        assert chosen(wanted, GPU) == found
    monkeypatch.setattr(kernel_loading, "nvidia_capability", lambda device: 9)
    monkeypatch.setattr(kernel_loading, "find_spec", lambda name: None)
    assert chosen("auto", GPU) is None, "without Triton"
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"options\.kernels: 'yes' is not one of auto, on, off"):
        Qwen3OmniSource(StageConfig(folder, options={"kernels": "yes"}))
    monkeypatch.setattr(kernel_loading, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"options\.kernels: the package triton is not installed"):
        Qwen3OmniSource(StageConfig(folder, options={"kernels": True}))


@pytest.mark.triton
@pytest.mark.usefixtures("kernels")
def test_where_no_compiler_is_they_are_left_out_or_one_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in an image of Python's alone: Triton would fail at a request's first step."""
    monkeypatch.setattr(kernel_loading, "nvidia_capability", lambda device: 9)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(kernel_loading.shutil, "which", lambda name: None)
    assert chosen("auto", GPU) is None
    assert "neither is installed" in caplog.text
    with pytest.raises(ConfigError, match=r"options\.kernels: neither is installed"):
        chosen("on", GPU)
    monkeypatch.setattr(kernel_loading.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert chosen("auto", GPU) is not None


@pytest.mark.triton
@pytest.mark.kernels
@pytest.mark.timeout(900)
def test_every_kernel_is_compiled_for_gpus_that_are_not_here() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.worker.kernels.ahead"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment)
    print(made.stdout)
    assert made.returncode == 0, made.stderr + made.stdout
    for kernel in ("stretches", "joined", "product", "placed", "summed", "chosen", "gated", "looked",
                   "ordered", "drawn", "snaked", "gated_products", "shared_products"):  # fmt: skip
        for kind in ("sm_80", "sm_86", "sm_89", "sm_90"):
            assert f"{kind} {kernel}: torch.bfloat16" in made.stdout
