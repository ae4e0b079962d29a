"""Checkpoints that differ in some fields of their files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def variant(folder: Path, at: Path, **changes: dict[str, Any]) -> Path:
    """A checkpoint that differs in some fields of its JSON files: ``config={...}``, ``generation_config={...}``."""
    at.mkdir()
    for file in folder.iterdir():
        os.symlink(file, at / file.name)
    for name, fields in changes.items():
        settings = json.loads((folder / f"{name}.json").read_text())
        for path, value in fields.items():
            *parents, key = path.split(".")
            inner = settings
            for parent in parents:
                inner = inner[parent]
            inner[key] = value
        (at / f"{name}.json").unlink()
        (at / f"{name}.json").write_text(json.dumps(settings))
    return at
