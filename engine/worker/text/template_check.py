"""Checks that a model's chat template takes little time and memory, before the model loads.

Templates are programs that come with a model's files. One that computes for hours, or writes gigabytes, would stop its
worker, and neither llama.cpp nor vLLM can interrupt it.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from engine.errors import WeightsError
from engine.ipc import spawn

_COMMAND = (*spawn.PYTHON, "-m", "parley_voice.engine.worker.text.template_trial")
_WALL_S = 120.0
"""The trial has a limit of CPU time, but the machine may be busy."""


@lru_cache(maxsize=8)
def check_template(text: str, file: Path) -> None:
    """Raise WeightsError if the template, from ``file``, takes too much time or memory.

    A template that is no valid Jinja, or that refuses a conversation, passes: the model's stage reports that.
    """
    with suppress(subprocess.TimeoutExpired):
        tried = subprocess.run(
            _COMMAND,
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=spawn.environment(),
            timeout=_WALL_S,
            check=False,
        )
        if tried.returncode == 0:
            return
    raise WeightsError(
        f"{file}: has a chat template that takes too much time or memory. Use another template, or download the model "
        "from another source."
    )
