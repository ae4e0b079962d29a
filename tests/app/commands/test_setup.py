"""Which configuration suits a machine, and the command that starts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.commands import setup
from app.commands.deployment import configurations
from app.commands.setup import TIERS, Machine, command, recommended, report
from engine.deployment.installation import install_command
from engine.deployment.model_catalog import catalogue


@pytest.fixture(autouse=True)
def nothing_pulled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.deployment.model_catalog.models_folder", lambda: tmp_path)


@pytest.mark.parametrize(
    ("machine", "config"),
    [
        (Machine(1, 0.5), "nano"),
        (Machine(2, 4.0), "starter"),
        (Machine(8, 12.0), "laptop"),
        (Machine(2, 64.0), "starter"),  # Kokoro is too slow for two cores
        (Machine(8, 12.0, (8.0,)), "laptop"),
        (Machine(8, 12.0, (12.0,)), "gpu_12gb"),
        (Machine(8, 12.0, (22.5,)), "gpu_24gb"),  # an A10
        (Machine(16, 64.0, (44.9,)), "qwen3_omni_48gb"),
        (Machine(16, 64.0, (44.9, 44.9)), "qwen3_omni_2x48gb"),
        (Machine(16, 64.0, (79.6,)), "qwen3_omni_80gb"),
        (Machine(16, 64.0, (80.0, 80.0)), "qwen3_omni_2gpu"),
        (Machine(16, 64.0, (140.0,)), "qwen3_omni_1gpu"),
    ],
)
def test_the_most_capable_configuration_that_fits_is_recommended(machine: Machine, config: str) -> None:
    assert recommended(machine).config == config


def test_every_configuration_is_there() -> None:
    assert {tier.config for tier in TIERS} <= {*configurations()}


def tier(config: str) -> setup.Tier:
    return next(one for one in TIERS if one.config == config)


def test_in_a_checkout_one_command_fetches_the_models_and_serves() -> None:
    assert command(tier("starter")) == "make serve"
    assert command(tier("laptop")) == ("parley pull --config laptop && make serve CONFIG=configs/laptop.yaml")
    assert command(tier("qwen3_omni_80gb")) == (
        "make serve CONFIG=configs/qwen3_omni_80gb.yaml WEIGHTS=hub:Qwen/Qwen3-Omni-30B-A3B-Instruct"
    )
    assert "parley quantize --bits 4 Qwen3-Omni-30B-A3B-Instruct" in command(tier("qwen3_omni_48gb"))


def test_an_installed_package_has_no_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "is_clone", lambda: False)
    assert command(tier("nano")) == "parley serve nano"
    assert command(tier("laptop")).startswith(f"{install_command('local')} && parley pull ")
    assert command(tier("qwen3_omni_80gb")).endswith(
        "parley serve qwen3_omni_80gb --weights hub:Qwen/Qwen3-Omni-30B-A3B-Instruct"
    )


def test_the_report_states_the_machine_and_the_size_of_the_download() -> None:
    lines = list(report(Machine(8, 12.0, (12.0,)), tier("laptop")))
    size_mb = sum(catalogue()[name].size_mb for name in ("zipformer-en", "qwen3-1.7b", "kokoro-en"))
    assert lines[0] == "This machine has 8 cores, 12.0 GB of free memory, a GPU of 12 GiB."
    assert lines[1].startswith("Recommended: laptop, ")
    assert lines[-1] == f"Download size of the models: {size_mb / 1000:.1f} GB."
    assert list(report(Machine(1, 1.0), tier("nano")))[-1] == "No download is needed."


@pytest.mark.parametrize(("told", "gpus"), [("24564\n12288\n", (23.988, 12.0)), ("[N/A]\n", ()), ("", ())])
def test_gpus_are_what_the_driver_reports(
    told: str, gpus: tuple[float, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told").write_text(told)
    monkeypatch.setattr(setup, "ASK_GPU", ("cat", str(tmp_path / "told")))
    assert setup.this_machine().gpus_gib == pytest.approx(gpus, abs=0.01)
    monkeypatch.setattr(setup, "ASK_GPU", (str(tmp_path / "no such program"),))
    assert setup.this_machine().gpus_gib == ()


def test_the_command_recommends_one_for_this_machine() -> None:
    done = CliRunner().invoke(cli, ["setup"])
    assert done.exit_code == 0
    assert "This machine has " in done.stdout
    assert "Recommended: " in done.stdout
