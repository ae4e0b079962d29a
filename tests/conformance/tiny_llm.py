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
SERVER, RANDOM = (Path(__file__).with_name(name) for name in ("serve_gguf.py", "random_gguf.py"))
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


def random_file() -> Path:
    """A random model of 113 million weights with the same tokenizer, which takes as long as a real one of that size."""
    file = model_file().with_name(f"random-{hashlib.sha256(RANDOM.read_bytes()).hexdigest()[:16]}.gguf")
    if not file.exists():
        half = file.with_suffix(".half")
        subprocess.run([sys.executable, str(RANDOM), str(checkpoint(file)), str(half)], cwd=ROOT, check=True)
        half.rename(file)
    return file


@contextmanager
def served(file: Path, *sizes: int) -> Generator[str]:
    """llama.cpp's server with a model: its address. ``sizes`` are its slots, the context of each, and its threads."""
    command = [sys.executable, str(SERVER), str(file), *map(str, sizes)]
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
