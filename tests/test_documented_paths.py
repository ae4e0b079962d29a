"""Import paths that the documentation gives to users: they stay, or the old path names the new one."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *ROOT.glob("*.md"),
    *(page for top in ("app", "engine", "docs", "configs", "examples") for page in (ROOT / top).rglob("*.md")),
]
DOCUMENTED = {
    "app.client": {"Tool", "connect"},
    "engine": {"Engine", "Request", "load_config"},
    "engine.chunk": {"Audio", "Codes", "Speech", "Text", "Transcript", "Usage", "kinds"},
    "engine.core": {"Message", "Request", "StageInfo"},
    "engine.worker.stage": {"Stage", "StageConfig"},
    "engine.worker.streamed": {"Broken", "Streamed"},
}
"""What programs of users import, as parley_voice.app.client and so on: clients, and stages in files of their own."""
IMPORT = re.compile(r"^from ((?:parley_voice\.)?(?:app|engine)[\w.]*) import ([\w, ]+)$", re.MULTILINE)


@pytest.mark.parametrize("prefix", ["parley_voice.", ""])
@pytest.mark.parametrize("module", DOCUMENTED)
def test_a_documented_path_can_be_imported(module: str, prefix: str) -> None:
    found = importlib.import_module(f"{prefix}{module}")
    assert {name for name in DOCUMENTED[module] if not hasattr(found, name)} == set()


def test_every_import_on_a_page_works() -> None:
    found = {
        (module, name.strip())
        for page in PAGES
        for module, names in IMPORT.findall(page.read_text("utf-8"))
        for name in names.split(",")
    }
    assert ("parley_voice.engine.worker.streamed", "Streamed") in found
    assert {one for one in found if not hasattr(importlib.import_module(one[0]), one[1])} == set()
