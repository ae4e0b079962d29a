"""The build backend of the package (PEP 517): setuptools, with one top-level package in the wheel, ``parley_voice``.

Packages called ``app`` or ``engine`` would collide with those of users' projects. So a wheel is built from a copy in
which ``app``, ``engine``, ``web`` and ``configs`` are folders of ``parley_voice``, and every import says so. A source
distribution and an editable installation have the repository's own layout.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta

from scripts.wheel_layout import stage

build_sdist = build_meta.build_sdist
build_editable = build_meta.build_editable
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel of the project in the working folder; return the wheel's name."""
    folder = os.path.abspath(wheel_directory)
    with _staged(Path.cwd()) as staged, chdir(staged):
        return build_meta.build_wheel(folder, config_settings)


@contextmanager
def _staged(root: Path) -> Generator[Path]:
    """Copy what the wheel is made of into a temporary folder, in the wheel's layout."""
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder)
        stage(root, staged)
        yield staged
