"""The build backend of the package (PEP 517): setuptools, with one top-level package in the wheel, ``parley_voice``.

Packages called ``app`` or ``engine`` would collide with those of users' projects. So a wheel is built from a copy in
which ``app``, ``engine``, ``web`` and ``configs`` are folders of ``parley_voice``, and every import says so. A source
distribution and an editable installation have the repository's own layout.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import chdir
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
    target = os.path.abspath(wheel_directory)
    with tempfile.TemporaryDirectory() as folder:
        stage(Path.cwd(), Path(folder))
        with chdir(folder):
            return build_meta.build_wheel(target, config_settings)
