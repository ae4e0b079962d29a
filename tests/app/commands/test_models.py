"""`parley models` and `parley pull`, as people type them."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.pulling import download
from app.pulling.download import TRIES
from engine.deployment import model_catalog
from engine.deployment.model_catalog import CatalogModel, File, Part, Source, catalogue, manifest_of
from engine.worker.uses import line_of
from tests.app.pulling.hub import COMMIT, REPOSITORY, FakeHub, serving

DATA = b"all of a small model\n"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[FakeHub]:
    files = (File("model.onnx"),)
    some = CatalogModel("some", "voice", "tts.some", REPOSITORY, "main", files, "MIT", ("en", "de"), 1)
    whole = (File("model.onnx", len(DATA), hashlib.sha256(DATA).hexdigest()),)
    shut = CatalogModel(
        "shut", "ears", "asr.some", REPOSITORY, COMMIT, whole, "Some-NC", ("en",), 1, ("non-commercial",)
    )
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for module in ("engine.deployment.model_catalog", "app.commands.models"):
        monkeypatch.setattr(f"{module}.catalogue", lambda: {"some": some, "shut": shut})
    with serving(FakeHub({"model.onnx": DATA})) as running:
        yield running


def typed(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, words)
    return done.exit_code, done.output


def test_a_model_is_listed_pulled_and_then_here(hub: FakeHub) -> None:
    assert "some voice 1 MB en de MIT" in " ".join(typed("models")[1].split())
    code, said = typed("pull", "some", "--hub", hub.url)
    assert (code, "licence MIT" in said, "files are not pinned" in said) == (0, True, True)
    assert manifest_of(model_catalog.models_folder() / "some")
    assert "yes" in typed("models")[1]
    hub.asked.clear()
    assert "is already here" in typed("pull", "some", "--hub", hub.url)[1]
    assert not hub.asked


def test_a_superseded_model_names_a_current_one_of_its_part(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = catalogue.__wrapped__()
    successors = {model.name: model.superseded_by for model in everything.values() if model.superseded_by}
    assert successors
    for name, successor in successors.items():
        assert everything[successor].part == everything[name].part
        assert not everything[successor].superseded_by
    monkeypatch.setattr("app.commands.models.catalogue", lambda: everything)
    monkeypatch.setenv("COLUMNS", "200")
    assert "superseded by qwen3.5-4b" in typed("models")[1]


def test_a_licence_that_is_not_free_has_to_be_agreed_to(hub: FakeHub) -> None:
    code, said = typed("pull", "shut", "--hub", hub.url)
    assert (code, "shut is non-commercial (Some-NC); read its licence, then pass --agree" in said) == (1, True)
    assert not hub.asked
    assert typed("pull", "shut", "--hub", hub.url, "--agree")[0] == 0
    assert hub.asked == {"model.onnx": 1}


def test_a_folder_brings_it_without_a_network(hub: FakeHub, tmp_path: Path) -> None:
    stick = tmp_path / "stick"
    stick.mkdir()
    (stick / "model.onnx").write_bytes(DATA)
    assert typed("pull", "some", "--from", str(stick))[0] == 0
    assert manifest_of(model_catalog.models_folder() / "some")
    assert not hub.asked


def test_without_the_hub_models_from_packages_are_named(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Source(parts=(Part(pypi="packaged", version="1.0", file="model.onnx"),))
    whole = File("model.onnx", len(DATA), hashlib.sha256(DATA).hexdigest(), (package,))
    packaged = CatalogModel("packaged", "voice", "tts.some", "", "1.0", (whole,), "MIT", ("en",), 1)
    listed = {**model_catalog.catalogue(), "packaged": packaged}
    monkeypatch.setattr("app.commands.models.catalogue", lambda: listed)
    monkeypatch.setattr(download, "PAUSE_S", 0.0)
    hub.statuses = [503]
    assert "failed with status 503. From packages: packaged" in " ".join(
        typed("pull", "some", "--hub", hub.url)[1].split()
    )
    hub.statuses = [503] * TRIES
    said = " ".join(typed("pull", "shut", "--hub", hub.url, "--agree")[1].split())
    assert "run the command again later" in said
    assert "From packages" not in said, "that one is a voice"


def test_mistakes_are_one_sentence(hub: FakeHub, tmp_path: Path) -> None:
    code, said = typed("pull", "somme", "--hub", hub.url)
    assert (code, "did you mean 'some'?" in said) == (1, True)
    token = tmp_path / "token"
    token.write_text("hf_secret")
    token.chmod(0o644)
    code, said = typed("pull", "some", "--hub", hub.url, "--token-file", str(token))
    assert (code, "--token-file" in said, "hf_secret" in said) == (1, True, False)


def test_the_catalogue_itself_can_be_read() -> None:
    for model in model_catalog.catalogue.__wrapped__().values():
        assert model.files
        assert len({file.path for file in model.files}) == len(model.files)
        assert model.languages
        family, _, name = model.use.partition(".")
        assert name or line_of(family), "the stage, or all of a family's"
