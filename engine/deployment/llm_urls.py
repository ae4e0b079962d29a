"""Short forms of language models, the values of ``--thinker``.

======================== ====================================================
``openai:MODEL@URL``      any OpenAI-compatible chat completions server
``ollama:MODEL``          Ollama on this machine, or ``ollama:MODEL@URL``
``lmstudio:MODEL``        LM Studio on this machine, or ``lmstudio:MODEL@URL``
``llamacpp``              llama.cpp's server on this machine, or ``llamacpp:PORT``
``gguf:PATH``             a model's file, which Parley runs itself
``vllm:PATH``             a checkpoint's folder, which vLLM runs for Parley
======================== ====================================================

This module opens no socket and reads no file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.deployment.remote_hosts import host_of, is_local
from engine.errors import ConfigError

USE, USE_FILE, USE_FOLDER = "llm.openai", "llm.llamacpp", "llm.vllm"
ANY_MODEL = "default"
"""The model name for a server that has one model and accepts any name."""
FORMS = {
    "openai": "openai:MODEL@URL",
    "ollama": "ollama:MODEL",
    "lmstudio": "lmstudio:MODEL",
    "llamacpp": "llamacpp[:PORT]",
    "gguf": "gguf:PATH",
    "vllm": "vllm:PATH",
}
PORTS = {"ollama": 11434, "lmstudio": 1234, "llamacpp": 8080}
"""The default port of each server."""

AT_ONCE = 4
"""Concurrent answers of a GGUF file's model: each reserves memory for its whole context."""
AT_ONCE_BY_VLLM = 16
"""Concurrent answers of vLLM, which gives each only the memory that it uses."""

_AT = re.compile(r"(?P<model>.*)@(?P<url>https?://.*)")  # a model's name may contain an @


@dataclass(frozen=True, slots=True)
class ThinkerSpec:
    """The stage settings that a short form stands for."""

    use: str
    options: Mapping[str, Any]
    weights: str | None = None
    max_batch: int | None = None

    @property
    def has_key(self) -> bool:
        """Whether the model is behind an HTTP server, which may need an API key."""
        return self.use == USE


def thinker_of(text: str) -> ThinkerSpec:
    """Return the stage settings that ``--thinker TEXT`` stands for.

    Raises:
        ConfigError: The form is unknown or incomplete. The message names the nearest form.
    """
    name, _, rest = text.partition(":")
    if name not in FORMS:
        close = difflib.get_close_matches(name, FORMS, n=1)
        hint = f"did you mean {FORMS[close[0]]}?" if close else f"known: {', '.join(FORMS.values())}"
        raise ConfigError(f"--thinker: there is no {text!r:.60} ({hint})")
    if name == "llamacpp":
        return _asked(ANY_MODEL, _local(_port(rest)))  # this server has one model and ignores its name
    if name == "gguf" and rest:
        return ThinkerSpec(USE_FILE, {}, weights=_file(rest), max_batch=AT_ONCE)
    if name == "vllm" and rest:
        return ThinkerSpec(USE_FOLDER, {}, weights=str(Path(rest).expanduser().absolute()), max_batch=AT_ONCE_BY_VLLM)
    found = _AT.fullmatch(rest)
    model, url = (found["model"], found["url"]) if found else (rest, "")
    if not model or (name == "openai" and not url) or name in ("gguf", "vllm"):
        raise ConfigError(f"--thinker: {text!r:.60} is not complete; write {FORMS[name]}")
    return _asked(model, url or _local(PORTS[name]))


def leaving(url: str, *, text: bool = True, images: bool = False, audio: bool = False) -> str:
    """Return a sentence that says which parts of a conversation a server receives; empty if it is on this machine."""
    if is_local(url):
        return ""
    what = [name for name, given in (("text", text), ("pictures", images), ("sound", audio)) if given]
    listed = " and ".join(filter(None, [", ".join(what[:-1]), what[-1]]))
    return f"Conversations leave this machine: {host_of(url)} gets their {listed}."


def _asked(model: str, url: str) -> ThinkerSpec:
    return ThinkerSpec(USE, {"url": url, "model": model})


def _file(text: str) -> str:
    """Return an absolute path; a name without a folder and without .gguf is unchanged, because the catalogue has it."""
    path = Path(text).expanduser()
    return str(path.absolute()) if path.suffix == ".gguf" or len(path.parts) > 1 else text


def _local(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


def _port(text: str) -> int:
    if not text:
        return PORTS["llamacpp"]
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise ConfigError(f"--thinker: {text!r:.20} is not a port; write {FORMS['llamacpp']}")
    return int(text)
