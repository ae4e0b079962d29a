"""The fleet of a running server: seen and changed by who has the admin key, and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from app.commands.admin import restart, scale, workers
from app.commands.server import Address
from app.refusal import Closed
from engine import EngineError
from tests.app.rig import LoudnessVad, Running, eventually, keys_file, running, script_spec, talking

KEY = "sesame-sesame-sesame"
ROUTES = [("GET", "/admin/workers"), ("POST", "/admin/scale"), ("POST", "/admin/restart")]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return Path(keys_file(tmp_path, KEY, name="admin.key"))


@pytest.fixture
async def kept(key_file: Path) -> AsyncGenerator[Running]:
    async with running(script_spec(admin_key_file=str(key_file)), vad=LoudnessVad) as one:
        yield one


async def ask(server: Running, method: str, path: str, key: str | None = KEY, body: object = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=server.http, timeout=30) as http:
        return await http.request(method, path, headers=headers, json=body)


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.fault("S2.5")
async def test_without_an_admin_key_nobody_may(method: str, path: str, server: Running) -> None:
    answer = await ask(server, method, path, body={"stage": "talker", "count": 2})
    assert answer.status_code == 403
    assert "server.admin_key_file" in answer.json()["error"]["message"]


@pytest.mark.parametrize("key", [None, "sesame", KEY + "x", "ключ"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.fault("S2.5")
async def test_another_key_opens_nothing(method: str, path: str, key: str | None, kept: Running) -> None:
    headers = {b"authorization": b"Bearer " + key.encode()} if key else {}
    async with httpx.AsyncClient(base_url=kept.http) as http:
        answer = await http.request(method, path, headers=headers, json={"stage": "talker", "count": 2})
    assert answer.status_code == 401
    assert kept.metric("parley_stage_replicas", stage="talker") == 1


@pytest.mark.fault("S2.5")
async def test_an_api_key_is_no_admin_key(tmp_path: Path, key_file: Path) -> None:
    keys = keys_file(tmp_path, "sk-user-0123456789")
    async with running(script_spec(admin_key_file=str(key_file), keys_file=keys), vad=LoudnessVad) as server:
        assert (await ask(server, "GET", "/admin/workers", "sk-user-0123456789")).status_code == 401
        assert (await ask(server, "GET", "/admin/workers")).status_code == 200
        assert (await ask(server, "GET", "/metrics")).status_code == 401


@pytest.mark.seed("A3.11")
async def test_replicas_are_listed_counted_and_changed(kept: Running) -> None:
    (row,) = [row for row in (await ask(kept, "GET", "/admin/workers")).json()["workers"] if row["stage"] == "talker"]
    assert (row["replica"], row["state"], row["incarnation"], row["leased"]) == ("worker0.0", "up", 1, 0)
    told = (await ask(kept, "POST", "/admin/scale", body={"stage": "talker", "count": 3})).json()["workers"]
    assert {row["replica"] for row in told} == {"worker0.0", "worker0.1", "worker0.2"}
    assert kept.metric("parley_replica_incarnation", stage="talker", replica="worker0.2") == 1
    told = (await ask(kept, "POST", "/admin/restart")).json()["workers"]
    assert {row["incarnation"] for row in told} == {2}
    assert kept.metric("parley_replica_incarnation", stage="talker", replica="worker0.2") == 2


@pytest.mark.parametrize(
    "body", [{}, {"stage": "mouth", "count": 2}, {"stage": "talker", "count": 0}, {"stage": "talker", "count": "x"}, []]
)
async def test_a_wish_that_makes_no_sense_changes_nothing(body: object, kept: Running) -> None:
    answer = await ask(kept, "POST", "/admin/scale", body=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert kept.metric("parley_stage_replicas", stage="talker") == 1


@pytest.mark.seed("A1.20")
async def test_a_session_goes_on_while_the_fleet_is_replaced(kept: Running) -> None:
    async with talking(kept) as client:
        await (await client.say("long 30")).send("response.create")
        await client.until("response.output_audio.delta")
        restarting = asyncio.create_task(ask(kept, "POST", "/admin/restart"))
        assert (await client.until("response.done"))["response"]["status"] == "completed"
        assert (await restarting).status_code == 200
        await client.alive()


async def test_health_names_the_stage_that_nobody_hosts_and_turns_green_again(kept: Running) -> None:
    fleet = kept.service.engine_host.engine._fleet  # pyright: ignore
    fleet.placements["worker0.0"].worker.fence()
    with pytest.raises(Closed, match="No worker runs ears, thinker, talker, code2wav now; lost workers restart"):
        kept.service.context()
    answer = await ask(kept, "GET", "/health")
    assert answer.status_code == 503
    assert answer.json() == {
        "status": "unavailable", "model": "script", "missing": "ears, thinker, talker, code2wav",
        "ready": False,
        "version": answer.json()["version"],
    }  # fmt: skip
    await eventually(lambda: kept.service.engine_host.state == "ready")
    assert (await ask(kept, "GET", "/health")).status_code == 200


async def test_the_commands_give_the_key_to_no_proxy_of_the_environment(
    kept: Running, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    await asyncio.to_thread(workers, Address(kept.http, str(key_file)))


async def test_the_commands_trust_the_certificate_that_the_server_signed(
    key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with running(script_spec(admin_key_file=str(key_file), https="auto"), vad=LoudnessVad) as server:
        remote = Address(server.http.replace("http", "https"), str(key_file))
        await asyncio.to_thread(workers, remote)


async def test_the_commands_do_it_from_outside(
    kept: Running, key_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remote = Address(kept.http, str(key_file))
    await asyncio.to_thread(scale, remote, ["talker=2"])
    await asyncio.to_thread(restart, remote)
    await asyncio.to_thread(workers, remote)
    assert "worker0.1" in capsys.readouterr().out
    for wish, words in (("talker", "STAGE=COUNT"), ("mouth=2", "no stage 'mouth'"), ("talker=0", "from 1")):
        with pytest.raises(EngineError, match=words):
            await asyncio.to_thread(scale, remote, [wish])
    wrong = tmp_path / "wrong"
    wrong.write_text("nothing")
    with pytest.raises(EngineError, match=r"rejected the key in .*wrong"):
        await asyncio.to_thread(workers, Address(kept.http, str(wrong)))
    with pytest.raises(EngineError, match="no server at"):
        await asyncio.to_thread(workers, Address("http://127.0.0.1:1", str(key_file)))
