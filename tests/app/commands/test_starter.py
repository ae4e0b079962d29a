"""The configuration that `parley serve` starts by default, and what it says while a part of it is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.commands import starter
from app.commands.deployment import deployment
from app.commands.starter import missing_of, starter_or_nano
from engine.deployment.installation import install_command
from engine.deployment.model_catalog import MANIFEST, models_folder

MODELS = ["moonshine-tiny-en", "smollm2-135m"]


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Have only these packages of the starter's installed; the models' folder is empty at first."""
    monkeypatch.setenv("HOME", str(tmp_path))
    found = importlib.util.find_spec

    def installed(*names: str) -> None:
        def find_spec(name: str, *rest: Any) -> Any:
            return (name in names or None) if name in starter.PACKAGES else found(name, *rest)

        monkeypatch.setattr(importlib.util, "find_spec", find_spec)

    return installed


def bring(name: str) -> None:
    folder = models_folder() / name
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text(
        f'{{"name": "{name}", "repository": "", "revision": "", "licence": "MIT", "files": []}}'
    )


def test_it_starts_once_all_of_it_is_here(packages: Callable[..., None]) -> None:
    packages(*starter.PACKAGES)
    for name in MODELS:
        bring(name)
    said: list[str] = []
    assert (starter_or_nano(said.append), said) == ("starter", [])


def test_without_its_models_nano_starts_and_says_the_command(packages: Callable[..., None]) -> None:
    packages(*starter.PACKAGES)
    said: list[str] = []
    assert starter_or_nano(said.append) == "nano"
    assert said == [
        "The built-in model answers for now, a few dozen requests, because moonshine-tiny-en and smollm2-135m are not "
        "on this machine; `parley pull --config starter` gets what is missing (142 MB)."
    ]
    bring(MODELS[0])
    said.clear()
    starter_or_nano(said.append)
    assert "because smollm2-135m is not on this machine" in said[0]
    assert [model.name for model in missing_of("starter")] == MODELS[1:]


def test_without_its_packages_nano_starts_and_says_the_command(packages: Callable[..., None]) -> None:
    packages("sherpa_onnx")
    for name in MODELS:
        bring(name)
    said: list[str] = []
    assert starter_or_nano(said.append) == "nano"
    assert f"because xllamacpp is not on this machine; `{install_command('local')}` gets what is missing." in said[0]


def test_its_models_are_pinned_free_and_small_enough(packages: Callable[..., None]) -> None:
    models = missing_of("starter")
    assert [model.name for model in models] == MODELS
    assert all(model.pinned and not model.restrictions for model in models)
    assert sum(model.size_mb for model in models) <= 250


def test_its_thinker_is_a_chain_of_nano_and_the_language_model() -> None:
    [thinker] = [stage for stage in deployment("starter").stages if stage.name == "thinker"]
    assert [model.use for model in thinker.models] == ["nano.thinker", "llm.llamacpp"]


@pytest.mark.parametrize(
    ("flags", "is_default"), [((), True), (("--voice", "slt"), True), (("--ears", "nano", "--voice", "slt"), False)]
)
def test_another_voice_alone_keeps_the_other_models_of_the_default(
    flags: tuple[str, ...], is_default: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Callable[[str], None]] = []
    monkeypatch.setattr(starter, "starter_or_nano", lambda say: asked.append(say) or "nano")  # type: ignore[func-returns-value]
    result = CliRunner().invoke(cli, ["serve", *flags, "--print-config"])
    assert result.exit_code == 0, result.output
    assert bool(asked) is is_default
