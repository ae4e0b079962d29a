"""Which configuration a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.commands import deployment as deployments
from app.commands.deployment import deployment
from engine import ConfigError


@pytest.mark.parametrize(("gpus", "devices"), [(0, {"cpu"}), (1, {0}), (2, {0})])
def test_a_model_brings_a_configuration_whose_devices_are_here(
    gpus: int, devices: set[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployments, "gpus", lambda: gpus)
    spec = deployment(model="qwen3_omni", weights="folder")
    assert (spec.model, spec.weights) == ("qwen3_omni", "folder")
    assert {device for worker in spec.workers for device in worker.devices} == devices


def test_a_configuration_of_the_model_s_own_name_comes_first() -> None:
    assert deployment(model="script").workers[0].stages[0] == "ears"
    assert deployment(model="script").model == "script"


def test_a_configuration_that_is_named_is_the_one() -> None:
    assert deployment("qwen3_omni_2gpu", model="qwen3_omni") == deployment("qwen3_omni_2gpu")


def test_an_unknown_model_is_left_to_the_engine_and_an_unknown_configuration_is_not() -> None:
    assert deployment(model="qwen3").model == "qwen3"
    with pytest.raises(ConfigError, match="did you mean 'qwen3_omni_tiny'"):
        deployment("qwen3_omni_tini")


def test_gpus_are_counted_by_their_device_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.setattr(deployments, "DEVICES", tmp_path)
    assert deployments.gpus() == 2
