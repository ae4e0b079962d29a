"""The layout of the wheel: ``app``, ``engine``, ``web`` and ``configs`` as folders of the package ``parley_voice``."""

from __future__ import annotations

import shutil
from pathlib import Path

from scripts.move_imports import MOVED, PACKAGE, moved

FILES = ("pyproject.toml", "README.md", "LICENSE", "NOTICE")
IGNORED = shutil.ignore_patterns("__pycache__", "node_modules", "training")
INIT = '"""Parley, a self-hosted server for real-time voice and vision conversations."""\n'


def stage(root: Path, staged: Path) -> None:
    """Copy the sources from ``root`` to the empty folder ``staged``. Raises MoveError."""
    for name in FILES:
        shutil.copy(root / name, staged)
    package = staged / PACKAGE
    for name in (*MOVED, "configs"):
        shutil.copytree(root / name, package / name, ignore=IGNORED)
    modules = {_module(file.relative_to(package)) for file in package.rglob("*.py")}
    for file in package.rglob("*.py"):
        source = file.read_bytes().decode()
        file.write_bytes(moved(source, modules, str(file.relative_to(package))).encode())
    (package / "__init__.py").write_text(INIT, encoding="utf-8")


def _module(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
