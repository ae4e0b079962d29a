"""The server around the sessions: health, metrics, pages, who may connect, and how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.server import VERSION, create_app, serve
from app.service import Service
from engine import ConfigError, EngineError, WeightsError, parse_config
from tests.app.rig import ROOT, Running, eventually, running, script_spec, talking

SERVE = """
import sys
from app.server import serve
from tests.app.scripted import script_spec
spec = script_spec(port=int(sys.argv[1]), drain_s=float(sys.argv[2]))
serve(spec, on_ready=lambda url, *_: print(url, flush=True))
"""


async def get(server: Running, path: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http) as http:
        return await http.get(path, headers=headers)


async def test_health_is_green_once_warm(server: Running) -> None:
    answer = await get(server, "/health")
    assert (answer.status_code, answer.json()) == (
        200,
        {"status": "ready", "ready": True, "model": "script", "version": VERSION},
    )
    assert (await get(server, "/livez")).json() == {"status": "alive"}


async def test_metrics_count_sessions_responses_and_the_queue(server: Running) -> None:
    async with talking(server) as client:
        await client.ask("say: one two three")
        await client.send("response.cancel")
        await client.error()
        page = (await get(server, "/metrics")).text
    assert "parley_sessions 1.0" in page
    assert 'parley_responses_total{status="completed"} 1.0' in page
    assert "parley_ttfa_seconds_count 1.0" in page
    assert "parley_rtf_count 1.0" in page
    assert "parley_underruns_total" in page
    assert 'parley_queue{stage="talker"} 0.0' in page
    assert 'parley_stage_replicas{stage="ears"} 1.0' in page
    assert 'parley_errors_total{code="response_cancel_not_active"} 1.0' in page


async def test_the_api_pages_come_from_local_files(server: Running) -> None:
    page = (await get(server, "/docs")).text
    assert "http://" not in page
    assert "https://" not in page
    assert '"validatorUrl": null' in page, "it would show a badge that another server draws"
    files = re.findall(r'"(/docs/files/[^"]+)"', page.replace("'", '"'))
    assert {name.rpartition(".")[2] for name in files} == {"js", "css", "png"}
    for name in files:
        assert (await get(server, name)).status_code == 200, name
    schema = (await get(server, "/openapi.json")).json()
    assert "/health" in schema["paths"]
    assert schema["openapi"].startswith("3.1"), "the schemas are those of 3.1, and Swagger UI reads it"


async def test_the_root_answers_with_the_page_or_says_where_the_api_is(server: Running) -> None:
    answer = await get(server, "/")
    assert answer.status_code == 200
    assert "Parley" in answer.text


@pytest.mark.parametrize("path", ["/v1/nothing", "/elsewhere"])
async def test_an_unknown_socket_is_refused_before_the_upgrade(path: str, server: Running) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{server.port}{path}")
    assert refused.value.response.status_code in (403, 404)


async def test_the_server_listens_while_the_engine_starts() -> None:
    class Slow:
        async def __aenter__(self) -> Any:
            await asyncio.Event().wait()

        async def __aexit__(self, *_: object) -> None:
            pass

    service = Service(script_spec(), make_engine=lambda _: Slow())
    service.start()
    await asyncio.sleep(0)
    assert service.engine_host.state == "starting"
    with pytest.raises(Exception, match="starting"), service.admission.admit():
        pass
    await service.stop()


async def test_an_engine_that_does_not_start_ends_the_server_with_its_error() -> None:
    class Broken:
        async def __aenter__(self) -> Any:
            raise WeightsError("weights/nano.safetensors: missing; run make weights")

        async def __aexit__(self, *_: object) -> None:
            pass

    service = Service(script_spec(), make_engine=lambda _: Broken())
    service.start()
    await eventually(lambda: service.engine_host.state == "failed")
    assert isinstance(service.engine_host.failure, EngineError)
    await service.stop()


def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"server\.port: {port} is in use"):
            serve(script_spec(port=port))


@pytest.mark.parametrize("place", [0, 2])
def test_a_class_that_its_file_lacks_is_reported_before_anything_listens(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bind(*_: object) -> None:
        raise AssertionError("the server listens")

    monkeypatch.setattr("app.server._bind", bind)
    file = tmp_path / "mine.py"
    file.write_text("from engine.worker.models.script import ScriptEars\n\nclass Mine(ScriptEars): ...\n")
    uses = ["script.ears", "script.thinker", "script.talker", "script.code2wav"]
    uses[place] = f"{file}:Mien"
    spec = parse_config(f"stages: [{', '.join(f'{{use: {use!r}}}' for use in uses)}]")
    with pytest.raises(ConfigError, match=rf"stages\[{place}\].use: .*mine.py has no Mien \(did you mean 'Mine'"):
        serve(spec)


def test_an_unknown_server_key_is_one_clear_error() -> None:
    spec = parse_config("model: script\nworkers: [{stages: [thinker]}]\nserver: {limits: {sesions: 3}}")
    with pytest.raises(ConfigError, match=r"server\.limits\.sesions: unknown key \(did you mean 'sessions'\?\)"):
        create_app(spec)


async def test_drain_lets_an_answer_end_and_refuses_the_next_session() -> None:
    async with running(script_spec()) as server, talking(server) as client, talking(server) as idle:
        await (await client.say("long 5")).send("response.create")
        await client.until("response.created")
        server.server.leave()
        await idle.socket.wait_closed()
        assert idle.socket.close_code == 1001
        with pytest.raises((OSError, InvalidStatus)):
            await connect(server.ws)
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        await client.socket.wait_closed()
        assert client.socket.close_code == 1001


async def test_drain_announces_what_it_cannot_wait_for() -> None:
    async with running(script_spec(drain_s=0.1)) as server, talking(server) as client:
        await (await client.say("long 400")).send("response.create")
        await client.until("response.output_audio.delta")
        server.server.leave()
        response = (await client.until("response.done"))["response"]
        assert response["status"] == "failed"
        assert response["status_details"]["error"]["code"] == "server_shutting_down"
        assert (await client.error())["code"] == "server_shutting_down"
        await client.socket.wait_closed()
        assert client.socket.close_code == 1001


@pytest.mark.parametrize(("signals", "code"), [(1, 0), (2, 128 + signal.SIGTERM)])
def test_sigterm_drains_and_a_second_one_is_hard(signals: int, code: int) -> None:
    """The process itself, with an answer under way that lasts longer than anyone waits."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", SERVE, str(port), "0.5" if signals == 1 else "60"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == f"http://127.0.0.1:{port}"
            ended = asyncio.run(_terminate(process, port, signals))
            assert ended == code
        finally:
            process.kill()
            process.communicate()


async def _terminate(process: subprocess.Popen[str], port: int, signals: int) -> int:
    """Ask for a long answer, send the signals, and wait for the exit code."""
    async with connect(f"ws://127.0.0.1:{port}/v1/realtime", max_queue=None) as client:
        item = '{"type":"message","role":"user","content":[{"type":"input_text","text":"long 500"}]}'
        await client.send(f'{{"type":"conversation.item.create","item":{item}}}')
        await client.send('{"type":"response.create"}')
        async for text in client:
            if "output_audio.delta" in str(text):
                break
        for n in range(signals):
            process.send_signal(signal.SIGTERM)
            if n < signals - 1:  # one that comes before the one before is heeded is the same signal
                await eventually(lambda: not _listens(port))
        return await asyncio.to_thread(process.wait, 60)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True
