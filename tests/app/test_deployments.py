"""A server with several deployments: each client gets the model that it names, and no model's trouble is another's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.http.sound import encoded
from app.server import Server, config_of
from app.service import Service
from engine import Engine, EngineSpec, WeightsError
from tests.app.http.test_sound import WAVE
from tests.app.live.caller import dialled
from tests.app.rig import LoudnessVad, Running, eventually, keys_file, running, talking
from tests.app.second_model import WORDS, model_of, script_model
from tests.app.transports.telephone.exchanges import Reached, asterisk, reached

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNKNOWN = ["gpt-realtime", "", "SECOND", "seconds"]
"""Names of clients that were written for other servers: the default deployment serves them all."""


def serving(*others: EngineSpec, **server: Any) -> AbstractAsyncContextManager[Running]:
    return running(script_model(**server), vad=LoudnessVad, others=others)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def several() -> AsyncGenerator[Running]:
    """Two models that run, and one that does not."""
    async with serving(model_of("second"), model_of("third", "Damaged")) as one:
        yield one


def engine(server: Running, model: str) -> Engine:
    found: Any = server.service.hosts.of(model).engine
    return found


async def get(server: Running, path: str, **query: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http) as http:
        return await http.get(path, params=query)


async def post(server: Running, path: str, **how: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http) as http:
        return await http.post(path, **how)


async def chat(server: Running, model: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "say: hello"}]}
    return await post(server, "/v1/chat/completions", json=body)


async def said(server: Running, query: str, **options: Any) -> str:
    """The model that a session has, and its answer."""
    async with talking(server, query, **options) as client:
        loaded = client.events[0]["session"]["parley"]["model"]
        response = await client.ask("say: hello", output_modalities=["text"])
        return f"{loaded}: {response['output'][0]['content'][0]['text']}"


async def test_a_session_has_the_model_that_it_names(several: Running) -> None:
    assert await said(several, "?model=second") == f"second: {WORDS}"
    assert await said(several, "?model=script") == "script: hello"
    assert await said(several, "") == "script: hello"


@pytest.mark.parametrize("name", UNKNOWN)
async def test_any_other_name_is_the_default_model(name: str, several: Running) -> None:
    assert await said(several, f"?model={name}") == "script: hello"
    answer = await chat(several, name)
    assert answer.headers["parley-model"] == "script"
    assert answer.json()["choices"][0]["message"]["content"] == "hello"


async def test_a_session_has_the_voices_of_its_model(several: Running) -> None:
    async with talking(several, "?model=second") as client:
        assert client.events[0]["session"]["parley"]["voices"] == ["alto", "bass"]
        assert (await client.configure(audio={"output": {"voice": "bass"}}))["parley"]["voice"] == "bass"


async def test_a_client_secret_chooses_the_model(tmp_path: Path) -> None:
    key = "sk-one-0123456789"
    async with serving(model_of("second"), keys_file=keys_file(tmp_path, key)) as server:
        headers = {"authorization": f"Bearer {key}"}
        made = await post(server, "/v1/realtime/client_secrets", json={"session": {"model": "second"}}, headers=headers)
        assert made.json()["session"]["parley"]["voices"] == ["alto", "bass"]
        page = {"authorization": f"Bearer {made.json()['value']}"}
        assert await said(server, "", additional_headers=page) == f"second: {WORDS}"


async def test_a_live_session_has_the_model_that_it_names(several: Running) -> None:
    async with dialled(several) as client:
        await client.start(model="second")
        await client.say("say: hello")
        await client.said(WORDS)


async def test_telephones_have_the_model_of_their_settings(several: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    telephone = {"audiosocket": "127.0.0.1:0", "greeting": "Say hello.", "session": {"model": "second"}}
    async with serving(model_of("second"), telephone=telephone) as server:
        asked: list[str] = []
        for model in ("script", "second"):
            served = engine(server, model)
            begin = served.open
            monkeypatch.setattr(served, "open", lambda *a, m=model, b=begin, **k: (asked.append(m), b(*a, **k))[1])
        async with asterisk(reached(server, Reached(several.port))):
            await eventually(lambda: bool(asked))
        assert set(asked) == {"second"}
        await server.empty()


async def test_http_answers_come_from_the_model_that_is_named(several: Running) -> None:
    whole = await chat(several, "second")
    assert whole.json()["choices"][0]["message"]["content"] == WORDS
    assert (whole.json()["model"], whole.headers["parley-model"]) == ("second", "second")
    assert "parley-mapped" not in whole.headers
    response = await post(several, "/v1/responses", json={"model": "second", "input": "say: hello"})
    assert response.json()["output"][0]["content"][0]["text"] == WORDS
    spoken = await post(several, "/v1/audio/speech", json={"model": "second", "voice": "bass", "input": "hello"})
    assert (spoken.headers["parley-model"], spoken.headers["parley-voice"]) == ("second", "bass")
    heard = {"data": {"model": "second"}, "files": {"file": ("one.wav", encoded(WAVE, "wav"))}}
    assert (await post(several, "/v1/audio/transcriptions", **heard)).headers["parley-model"] == "second"


async def test_the_models_that_run_are_listed_with_their_voices(several: Running) -> None:
    listed = (await get(several, "/v1/models")).json()["data"]
    assert [(one["id"], one["parley"]["voices"]) for one in listed] == [
        ("script", ["tone"]),
        ("second", ["alto", "bass"]),
    ]
    assert (await get(several, "/v1/models/second")).json() == listed[1]
    assert (
        (await get(several, "/v1/models/gpt-5")).json()["error"]["message"].endswith("'script' or 'second' or 'third'.")
    )
    voices = (await get(several, "/v1/audio/voices", model="second")).json()["voices"]
    assert [one["id"] for one in voices] == ["alto", "bass"]
    spoken = (await get(several, "/v1/audio/models")).json()["models"]
    assert [one["id"] for one in spoken] == ["script", "second"]


async def test_strict_names_list_all_models() -> None:
    async with serving(model_of("second"), strict_names=True) as server:
        assert (await chat(server, "second")).status_code == 200
        error = (await chat(server, "gpt-5")).json()["error"]
    assert (error["code"], error["message"]) == (
        "model_not_found",
        "The model 'gpt-5' is not loaded: use 'script' or 'second'.",
    )


async def test_a_model_that_did_not_start_is_one_clear_error_for_its_own_clients(several: Running) -> None:
    why = "The model 'third' could not be started: the weights of … are damaged: pull them again"
    refused = await chat(several, "third")
    assert (refused.status_code, refused.json()["error"]["code"], refused.json()["error"]["message"]) == (
        503,
        "failed",
        why,
    )
    assert (await get(several, "/v1/models/third")).status_code == 503
    with pytest.raises(InvalidStatus) as denied:
        await connect(f"{several.ws}?model=third")
    assert denied.value.response.status_code == 503
    assert why.encode() in (denied.value.response.body or b"")
    async with dialled(several) as client:
        await client.send("session.start", session={"model": "third"})
        assert (await client.error())["message"] == why
        await client.start(model="second")  # the client may choose another one
    assert await said(several, "?model=second") == f"second: {WORDS}"


async def test_health_shows_each_model(several: Running) -> None:
    health = await get(several, "/health")
    assert health.status_code == 200
    body = health.json()
    assert (body["status"], body["ready"], body["model"]) == ("ready", False, "script")
    assert body["models"]["second"] == {"status": "ready"}
    assert body["models"]["third"]["status"] == "failed"
    assert body["models"]["third"]["error"] == "the weights of … are damaged: pull them again"


async def test_a_lost_worker_is_missed_by_its_own_model_only(tmp_path: Path) -> None:
    async with serving(model_of("second")) as server:
        second = engine(server, "second")
        held = second._fleet.placements["second/worker0.0"].filling  # pyright: ignore[reportPrivateUsage]
        async with held:  # no successor starts meanwhile
            worker = second._fleet.placements["second/worker0.0"].worker  # pyright: ignore[reportPrivateUsage]
            assert worker is not None
            worker.fence()
            refused = await chat(server, "second")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
            assert "thinker" in refused.json()["error"]["message"]
            health = await get(server, "/health")
            assert health.json()["models"] == {
                "script": {"status": "ready"},
                "second": {"status": "unavailable", "missing": "thinker"},
            }
            assert health.status_code == 200
            assert await said(server, "?model=script") == "script: hello"
        await eventually(lambda: second.ready)
        assert (await chat(server, "second")).json()["choices"][0]["message"]["content"] == WORDS


async def test_a_default_model_that_did_not_start_leaves_the_others_alone() -> None:
    async with running(model_of("third", "Damaged"), vad=LoudnessVad, others=[model_of("second")]) as server:
        assert (await chat(server, "second")).json()["choices"][0]["message"]["content"] == WORDS
        assert await said(server, "?model=second") == f"second: {WORDS}"
        assert (await chat(server, "gpt-5")).json()["error"]["code"] == "failed"
        health = await get(server, "/health")
        assert (health.status_code, health.json()["status"], health.json()["model"]) == (200, "ready", "third")


async def test_a_server_without_any_model_ends_with_the_first_one_s_error() -> None:
    service = Service(model_of("third", "Damaged"), vad=LoudnessVad, others=[model_of("fourth", "Damaged")])
    listener = socket.create_server(("127.0.0.1", 0))
    async with asyncio.timeout(30):
        await Server(config_of(service), service).serve(sockets=[listener])
    assert isinstance(service.hosts.failure, WeightsError)


async def test_weights_that_are_missing_stop_no_other_model() -> None:
    stages = tuple(
        replace(stage, use="asr.sherpa_offline", weights="no-such-folder", options={})
        if stage.name == "ears"
        else stage
        for stage in model_of("third").stages
    )
    async with serving(replace(model_of("third"), stages=stages)) as server:
        assert await said(server, "") == "script: hello"
        error = (await chat(server, "third")).json()["error"]
    assert error["code"] == "failed"
    assert error["message"].startswith("The model 'third' could not be started: There is no folder no-such-folder:")


async def test_common_stages_are_loaded_and_counted_once(tmp_path: Path) -> None:
    admin = "sesame-sesame-sesame"
    async with serving(model_of("second"), admin_key_file=keys_file(tmp_path, admin)) as server:
        page = (await get(server, "/metrics")).text
        replicas = {
            sample.labels["stage"]: sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == "parley_stage_replicas"
        }
        assert replicas == {
            "script+second/ears": 1,
            "script+second/talker": 1,  # beside the common code2wav; only script uses it
            "script+second/code2wav": 1,
            "script/thinker": 1,
            "second/thinker": 1,
            "second/talker": 1,
        }
        headers = {"authorization": f"Bearer {admin}"}
        body = {"stage": "second/thinker", "count": 2}
        scaled = (await post(server, "/admin/scale", json=body, headers=headers)).json()["workers"]
        assert [one["stage"] for one in scaled].count("second/thinker") == 2
        assert [one["stage"] for one in scaled].count("script+second/ears") == 1
