"""The tiny language model as a file for llama.cpp, made on demand and kept in ``.conformance/``; and its server."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.environments import MADE

ROOT = MADE.parent
MAKERS = "engine.training.tiny_llm.train", "engine.training.tiny_llm.write_gguf"
SERVER = Path(__file__).with_name("serve_gguf.py")
MAKE_S = 500
"""Training takes half a minute where nothing else runs."""


def model_file() -> Path:
    """The model, as the present scripts make it: trained the first time. Its checkpoint lies in a folder beside it."""
    sources = b"".join((ROOT / f"{name.replace('.', '/')}.py").read_bytes() for name in MAKERS)
    file = MADE / "tiny_llm" / f"{hashlib.sha256(sources).hexdigest()[:16]}.gguf"
    if not file.exists():
        shutil.rmtree(file.parent, ignore_errors=True)
        folder, half = checkpoint(file), file.with_suffix(".half")
        folder.mkdir(parents=True)
        for name, arguments in zip(MAKERS, ([folder], [folder, half]), strict=True):
            command = [sys.executable, "-m", name, *map(str, arguments)]
            subprocess.run(command, cwd=ROOT, check=True, timeout=MAKE_S, stdout=subprocess.DEVNULL)
        half.rename(file)
    return file


def checkpoint(file: Path) -> Path:
    """What transformers reads of the same model."""
    return file.parent / "checkpoint"


@contextmanager
def served(file: Path) -> Generator[str]:
    """llama.cpp's server with a model: its address."""
    command = [sys.executable, str(SERVER), str(file)]
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
