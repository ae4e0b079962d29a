"""vLLM's own environment, if `make vllm` has made it: its interpreter, a worker there that lets itself be asked, and a
checkpoint whose answers never end."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".vllm" / "bin" / "python"
STAGE = Path(__file__).with_name("asked_vllm.py")
SOCKET = "PARLEY_TEST_VLLM_SOCKET"
"""The environment variable that tells the worker where it may be asked."""
ANSWER_S = 60.0


@contextmanager
def asked() -> Generator[tuple[str, Callable[[dict[str, Any]], Any]]]:
    """What a stage's ``use`` is to say, and what asks its worker: for a completion (``complete``), for the rest of an
    answer (``go_on``), or how many answers are computed (``processing``)."""
    with tempfile.TemporaryDirectory(prefix="parley-") as folder, pytest.MonkeyPatch.context() as patched:
        path = Path(folder) / "asked"
        patched.setenv(SOCKET, str(path))

        def ask(question: dict[str, Any]) -> Any:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(ANSWER_S)
                connection.connect(str(path))
                connection.sendall(json.dumps(question).encode() + b"\n")
                with connection.makefile() as answers:
                    return json.loads(answers.readline())

        yield str(STAGE), ask


def write_endless(checkpoint: Path, folder: Path) -> None:
    """A checkpoint with the same tokenizer, whose every token is followed by the next one of the vocabulary."""
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weights[name] = np.zeros_like(weights[name])
    shape = weights["model.embed_tokens.weight"].shape
    embedded = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    words = np.arange(3, shape[0])  # the first three are marks: the end among them
    head = np.zeros_like(embedded)
    head[np.roll(words, -1)] = embedded[words]
    head[words[0]] += embedded[:3].sum(0)
    weights |= {"model.embed_tokens.weight": embedded, "lm_head.weight": head}
    weights["model.norm.weight"] = np.ones_like(weights["model.norm.weight"])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
