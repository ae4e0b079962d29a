"""The tiny language model as a file for llama.cpp, made on demand and kept in ``.conformance/``; and its server."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.environments import MADE, RECIPES, Environment

ROOT = RECIPES.parents[1]
SOURCE = ROOT / "engine" / "training" / "tiny_llm"
ENVIRONMENT = Environment("llamacpp")
WRITER = ENVIRONMENT.recipe / "write_gguf.py"
MAKE_S = 500
"""Training takes half a minute where nothing else runs."""


def model_file() -> Path:
    """The model, as the present scripts make it: trained the first time."""
    sources = b"".join(path.read_bytes() for path in (SOURCE / "train.py", WRITER))
    file = MADE / "tiny_llm" / f"{hashlib.sha256(sources).hexdigest()[:16]}.gguf"
    if not file.exists():
        shutil.rmtree(file.parent, ignore_errors=True)
        folder = file.parent / "checkpoint"
        folder.mkdir(parents=True)
        train = [sys.executable, "-m", "engine.training.tiny_llm.train", str(folder)]
        subprocess.run(train, cwd=ROOT, check=True, timeout=MAKE_S, stdout=subprocess.DEVNULL)
        half = file.with_suffix(".half")
        subprocess.run([ENVIRONMENT.tool, str(WRITER), str(folder), str(half)], check=True)
        half.rename(file)
    return file


@contextmanager
def served() -> Generator[str]:
    """llama.cpp's server with that model: its address. Skips the test where its environment is not made."""
    if not ENVIRONMENT.ready:
        pytest.skip("llama.cpp is not here: python tests/conformance/environments.py llamacpp")
    command = [ENVIRONMENT.tool, str(ENVIRONMENT.recipe / "serve.py"), str(model_file())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            address = next((line for line in server.stdout if line.startswith("http")), "")
            assert address, "llama.cpp's server does not start"
            yield address.strip()
        finally:
            server.stdin.close()
            server.wait(timeout=20)
