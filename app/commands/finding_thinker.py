"""`--thinker auto`: finds a language model server that is already running on this machine, by its usual port."""

from __future__ import annotations

from typing import Any

import httpx2

from engine import ConfigError
from engine.deployment.llm_urls import FORMS, PORTS

ASK_S = 1.0  # maximum seconds for a local server to answer
NAMES = {"ollama": "Ollama", "lmstudio": "LM Studio", "llamacpp": "llama.cpp's server"}
_NO_THINKERS = ("embed", "rerank", "bge-", "whisper")
"""Parts of the names of models that don't generate answers."""


def found(http: httpx2.Client | None = None) -> tuple[str, str]:
    """Return the short form of the first server that answers, and a sentence about it.

    Raises ConfigError if none answers, or none has a model.
    """
    asked: list[str] = []
    # proxies of the environment are for other machines
    with http or httpx2.Client(trust_env=False, timeout=ASK_S) as client:
        for form, port in PORTS.items():
            models = _models(client, port)
            if models:
                short = f"{form}:{models[0]}" if FORMS[form].endswith("MODEL") else form
                others = f" (of {len(models)})" if len(models) > 1 else ""
                return short, f"found {NAMES[form]} with {models[0]}{others}: --thinker {short}"
            asked.append(f"{NAMES[form]} at {port}" + ("" if models is None else ", which has no model"))
    raise ConfigError(f"--thinker auto: no language model server found on this machine; tried: {'; '.join(asked)}")


def _models(client: httpx2.Client, port: int) -> list[str] | None:
    """Return the models of the server at a port that can generate answers; None if there is no server."""
    try:
        listed: Any = client.get(f"http://127.0.0.1:{port}/v1/models").raise_for_status().json()
        names = [str(model["id"]) for model in listed["data"]]
    except (httpx2.HTTPError, ValueError, TypeError, KeyError):
        return None
    return [name for name in names if not any(word in name.lower() for word in _NO_THINKERS)]
