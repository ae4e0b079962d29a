"""A language model that runs elsewhere, between the script's ears and voice: what it is asked, and what becomes of a
server that is down, or comes back. It is a server on a socket of its own, and its answers are scripted."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

from app.commands.deployment import Parts, deployment, written
from app.commands.doctor import elsewhere
from app.commands.doctor import model as examined
from app.http.sound import encoded
from engine import ConfigError, EngineSpec, ModelInfo, StageSpec, describe
from engine.worker.remote import watch
from engine.worker.stage import StageConfig
from engine.worker.stages.llm import openai
from tests.app.http.test_sound import WAVE
from tests.app.rig import LoudnessVad, Running, eventually, running, silence, talking, tone
from tests.engine.worker.llm.gguf_files import saying, write_model
from tests.engine.worker.llm.scripted import Reply, answer, scripted, stream, words

MODELS: Reply = answer(200, {"data": [{"id": "m"}]})


def spec(url: str, model: str = "m") -> EngineSpec:
    """What `--thinker` makes of the scripted family."""
    whole = deployment("script", parts=Parts(thinker=f"openai:{model}@{url}"))
    patient = dataclasses.replace(whole.heartbeat, timeout_s=20.0)
    return dataclasses.replace(whole, launcher="inline", server={"host": "127.0.0.1", "port": 0}, heartbeat=patient)


async def health(server: Running) -> dict[str, Any]:
    async with httpx2.AsyncClient() as http:
        response = await http.get(f"{server.http}/health")
        assert response.status_code == 200
        return response.json()


async def test_the_model_is_asked_for_answers_and_for_nothing_else() -> None:
    async with scripted(stream(*words("Good ", "**day**.")), models=MODELS) as llm, running(spec(llm.url)) as server:
        await eventually(lambda: llm.probed == 1)
        for _ in range(3):
            assert (await health(server))["ready"]
        async with httpx2.AsyncClient() as http:
            file = {"file": ("one.wav", encoded(WAVE, "wav"))}
            heard = await http.post(f"{server.http}/v1/audio/transcriptions", data={"model": "m"}, files=file)
            said = {"model": "m", "input": "As it stands.", "response_format": "pcm"}
            spoken = await http.post(f"{server.http}/v1/audio/speech", json=said)
        assert heard.json()["text"] == "1.0 seconds"
        assert len(spoken.content) > 10_000
        assert (llm.asked, llm.probed) == ([], 1)
        async with talking(server) as client:
            response = await client.ask("How are you?")
        assert response["output"][0]["content"][0]["transcript"] == "Good **day**."
        assert [one.body["messages"][-1]["content"] for one in llm.asked] == ["How are you?"]
    await server.empty()


async def test_what_is_spoken_is_heard_here_and_answered_there() -> None:
    async with (
        scripted(stream(*words("Well."))) as llm,
        running(spec(llm.url), vad=LoudnessVad) as server,
        talking(server) as client,
    ):
        await client.append(np.concatenate([tone(1.0), silence(1.0)]))
        response = (await client.until("response.done"))["response"]
        assert response["output"][0]["content"][0]["transcript"] == "Well."
        assert llm.asked[-1].body["messages"][-1]["content"].endswith("seconds")


async def test_a_server_that_is_down_leaves_ours_up_and_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PROBE_EVERY_S", 0.05)
    async with scripted() as gone:
        url, port = gone.url, gone.port
    async with running(spec(url)) as server:
        assert server.service.engine_host.engine is not None
        engine = server.service.engine_host.engine
        await eventually(lambda: bool(engine.unavailable))
        told = await health(server)
        assert (told["status"], told["ready"]) == ("ready", False)
        assert told["unavailable"]["thinker"] == "The language model's server cannot be reached. Is it running?"
        assert str(port) in engine.unavailable["thinker"]
        async with talking(server) as client:
            failed = await client.ask("How are you?")
            assert failed["status"] == "failed"
            said = "The language model's server cannot be reached. Is it running?"
            assert failed["status_details"]["error"]["message"] == said
            async with httpx2.AsyncClient(base_url=server.http) as http:
                refused = await http.post("/v1/responses", json={"model": "x", "input": "How are you?"})
            assert said in refused.text
            assert str(port) not in refused.text
            async with scripted(stream(*words("Back.")), port=port, models=MODELS):
                await eventually(lambda: not engine.unavailable)
                assert (await health(server))["ready"]
                again = await client.ask("And now?")
                assert again["output"][0]["content"][0]["transcript"] == "Back."
            assert (await client.ask("And once more?"))["status"] == "failed"
            await eventually(lambda: bool(engine.unavailable))
            async with scripted(stream(*words("Back.")), port=port, models=MODELS):
                await eventually(lambda: not engine.unavailable)


async def test_a_model_that_the_server_does_not_have_is_told_with_the_nearest() -> None:
    async with scripted(models=MODELS) as llm, running(spec(llm.url, "mm")) as server:
        assert server.service.engine_host.engine is not None
        engine = server.service.engine_host.engine
        await eventually(lambda: bool(engine.unavailable))
        assert "has no model 'mm' (did you mean 'm'?)" in engine.unavailable["thinker"]


@pytest.mark.parametrize(("reply", "looks"), [(MODELS, 1), (answer(503), 121)])
async def test_an_idle_hour_asks_for_no_answer_and_looks_for_a_server_that_is_down(reply: Reply, looks: int) -> None:
    """By a clock of the test's own: between two looks a stage sleeps, and nothing else of it takes time."""
    passed_s, over = 0.0, asyncio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds
        if passed_s > 3600:
            over.set()
            await asyncio.Event().wait()

    async with scripted(models=reply) as llm:
        stage = openai.OpenAiLlmStage(StageConfig(options={"url": llm.url, "model": "m"}), sleep)
        watching = asyncio.create_task(stage.watch())
        if looks > 1:
            await asyncio.wait_for(over.wait(), 60)
        else:
            await eventually(lambda: llm.probed == 1)
            assert not stage.unavailable
            await asyncio.sleep(0.05)  # enough for another look, if it did not wait for a reason
        watching.cancel()
        await asyncio.wait([watching])
        await stage.aclose()
    assert (llm.probed, llm.asked) == (looks, [])


def test_parts_that_fit_no_deployment_are_told() -> None:
    with pytest.raises(ConfigError, match="there is no 'olama:x'"):
        deployment(parts=Parts(thinker="olama:x"))
    with pytest.raises(ConfigError, match="--thinker-key-file: requires --thinker"):
        deployment(parts=Parts(thinker_key_file="key"))
    with pytest.raises(ConfigError, match="--thinker-key-file: only for a server; a model's file needs no key"):
        deployment(parts=Parts(thinker="gguf:m.gguf", thinker_key_file="key"))


def test_the_doctor_names_who_gets_what_and_who_cannot_be_had() -> None:
    info = ModelInfo(name="m", notes=("Conversations leave this machine: llm.example gets their text.",))
    found = list(elsewhere(info, {"thinker": "The server cannot be reached."}))
    assert [(one.level, one.subject) for one in found] == [("warn", "note"), ("fail", "thinker")]
    assert "llm.example gets their text" in found[0].text
    assert not list(elsewhere(ModelInfo(name="m"), {}))


async def test_the_doctor_tells_of_a_server_that_is_down() -> None:
    async with scripted() as gone:
        url = gone.url
    found = {one.subject: one for one in await examined(spec(url))}
    assert (found["thinker"].level, found["model"].level) == ("fail", "ok")
    assert "cannot be reached. Is it running?" in found["thinker"].text


async def test_who_gets_what_is_told_at_the_start_and_to_every_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai.OpenAiLlmStage, "watch", nobody_looks)  # the name leads nowhere
    whole = spec("https://llm.example/v1")
    told = "Conversations leave this machine: llm.example gets their text."
    assert describe(whole).notes == (told,)
    async with running(whole) as server, httpx2.AsyncClient() as http:
        listed = (await http.get(f"{server.http}/v1/models")).json()["data"][0]
        assert listed["parley"]["notes"] == [told]
        async with talking(server) as client:
            updated = await client.configure()
            assert updated["parley"]["notes"] == [told]


async def nobody_looks(self: openai.OpenAiLlmStage) -> None:
    await asyncio.Event().wait()


async def test_a_models_file_is_run_here_and_named_after_its_file(tmp_path: Path) -> None:
    file = write_model(tmp_path / "m.gguf", saying("Good ", "day."))
    whole = deployment("script", parts=Parts(thinker=f"gguf:{file}"))
    assert whole.stages[1] == StageSpec(use="llm.llamacpp", name="thinker", weights=str(file), max_batch=4)
    assert f"weights: {file}" in written(whole)
    inline = dataclasses.replace(whole, launcher="inline", server={"host": "127.0.0.1", "port": 0})
    async with running(inline) as server, talking(server) as client:
        assert (await health(server))["ready"]
        response = await client.ask("How are you?")
        assert response["output"][0]["content"][0]["transcript"] == "Good day."
    assert describe(inline).name == "m"


async def test_a_file_that_is_none_ends_the_doctor_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"<html>404</html>")
    found = await examined(deployment("script", parts=Parts(thinker=f"gguf:{tmp_path / 'm.gguf'}")))
    [one] = found
    assert (one.level, one.subject) == ("fail", "model")
    assert "m.gguf: is not a GGUF file" in one.text
    assert "engine/weights" not in one.step, "it is not the built-in model that is broken"
