"""Which ears of the catalogue are on this machine, and which are advised."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from app.commands import open_ears
from app.commands.open_ears import advised_ears, installed_ears
from engine.deployment.model_catalog import MANIFEST, CatalogModel, File, Manifest

PINNED = (File("x", size=1, sha256="0" * 64),)
CATALOGUE = {
    "voice": CatalogModel("voice", "voice", "tts.some", "a/b", "main", PINNED, "MIT", ("en",), 1),
    "open": CatalogModel("open", "ears", "asr.some", "a/b", "main", (File("x"),), "MIT", ("en",), 2),
    "large": CatalogModel("large", "ears", "asr.some", "a/b", "main", PINNED, "MIT", ("en",), 90),
    "small": CatalogModel("small", "ears", "asr.some", "a/b", "main", PINNED, "MIT", ("en",), 40),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(open_ears, "catalogue", lambda: CATALOGUE)
    monkeypatch.setattr("engine.deployment.model_catalog.models_folder", lambda: tmp_path)
    return tmp_path


def pulled(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / name / "x").write_bytes(b"x")
    manifest = Manifest(name, "a/b", "main", "MIT", PINNED)
    (folder / name / MANIFEST).write_bytes(msgspec.json.encode(manifest))


def test_the_first_complete_ears_are_found(folder: Path) -> None:
    pulled(folder, "voice")
    (folder / "open").mkdir()  # a pull that was broken off
    assert installed_ears() is None
    pulled(folder, "small")
    pulled(folder, "large")
    assert installed_ears() == "large"


def test_the_smallest_pinned_ears_are_advised() -> None:
    assert advised_ears().name == "small"
