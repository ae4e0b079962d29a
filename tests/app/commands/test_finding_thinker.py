"""`--thinker auto`: which of the three servers is here, with which model, or that there is none."""

from __future__ import annotations

import asyncio
import socket

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.commands.finding_thinker import found
from engine import ConfigError
from tests.engine.worker.llm.scripted import Reply, answer, scripted

FORMS = ("ollama", "lmstudio", "llamacpp")


def listed(*names: str) -> Reply:
    return answer(200, {"data": [{"id": name} for name in names]})


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Ports at which nobody listens, until a test has somebody do so."""
    with socket.create_server(("127.0.0.1", 0)) as shut:
        nobody = int(shut.getsockname()[1])
    free: dict[str, int] = dict.fromkeys(FORMS, nobody)
    monkeypatch.setattr("app.commands.finding_thinker.PORTS", free)
    return free


@pytest.mark.parametrize(
    ("form", "models", "short", "said"),
    [
        (
            "ollama",
            ("qwen3.5:4b",),
            "ollama:qwen3.5:4b",
            "found Ollama with qwen3.5:4b: --thinker ollama:qwen3.5:4b",
        ),
        ("lmstudio", ("nomic-embed-text", "gemma", "phi"), "lmstudio:gemma", "found LM Studio with gemma (of 2)"),
        ("llamacpp", ("model.gguf",), "llamacpp", "found llama.cpp's server with model.gguf: --thinker llamacpp"),
    ],
)
async def test_the_server_that_runs_is_found_with_a_model_that_can_think(
    form: str, models: tuple[str, ...], short: str, said: str, ports: dict[str, int]
) -> None:
    async with scripted(models=listed(*models)) as llm:
        ports[form] = int(llm.url.split(":")[-1].partition("/")[0])
        got, sentence = await asyncio.to_thread(found)
    assert got == short
    assert sentence.startswith(said)


async def test_a_server_without_models_is_passed_by(ports: dict[str, int]) -> None:
    async with scripted(models=listed()) as empty, scripted(models=listed("m")) as other:
        ports["ollama"] = int(empty.url.split(":")[-1].partition("/")[0])
        ports["llamacpp"] = int(other.url.split(":")[-1].partition("/")[0])
        assert (await asyncio.to_thread(found))[0] == "llamacpp"
        ports["llamacpp"] = ports["lmstudio"]
        with pytest.raises(ConfigError, match=r"Ollama at [0-9]+, which has no model; LM Studio"):
            await asyncio.to_thread(found)


@pytest.mark.parametrize("reply", [answer(500, {}), answer(200, {"data": "none"}), answer(200, [])])
async def test_what_is_no_such_server_is_passed_by(reply: Reply, ports: dict[str, int]) -> None:
    async with scripted(models=reply) as other:
        ports["ollama"] = int(other.url.split(":")[-1].partition("/")[0])
        with pytest.raises(ConfigError, match="no language model server found on this machine; tried: Ollama at"):
            await asyncio.to_thread(found)


async def test_what_was_found_is_said_and_written(ports: dict[str, int]) -> None:
    async with scripted(models=listed("m")) as llm:
        ports["ollama"] = int(llm.url.split(":")[-1].partition("/")[0])
        words = ["serve", "--thinker", "auto", "--print-config"]
        done = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert "--thinker ollama:m" in done.output
    assert "use: llm.openai" in done.output
