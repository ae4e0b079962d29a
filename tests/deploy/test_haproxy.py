"""More than one server behind HAProxy: what belongs to a server reaches it, a drain drops nobody, and what a server
that is gone held ends with one clear error. The proxy is the real one, with the file that deploy/ has."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import aioice.ice
import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.app.rig import TIMEOUT_S, Client
from tests.app.transports.webrtc.caller import Caller
from tests.deploy.clients import BEARER, SDP, Held, called, client_of, held, made, opens, owner, socket
from tests.deploy.haproxy import KEY, PATIENCE_S, Fronts, free_port, fronts
from tests.test_blocks import ALL

pytestmark = [pytest.mark.haproxy, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Fronts]:
    """For tests that start none of its programs anew: one that is started in a test must end with it."""
    async with fronts(tmp_path_factory.mktemp("fronts")) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def two(tmp_path: Path) -> AsyncGenerator[Fronts]:
    async with fronts(tmp_path) as one:
        yield one


async def test_what_belongs_to_a_server_reaches_it_also_after_the_proxy_began_anew(two: Fronts) -> None:
    async with client_of(two) as http, AsyncExitStack() as stack:
        clients = await held(two, stack, 8)
        assert Counter(one.server for one in clients) == {"a": 4, "b": 4}
        kept = [await made(http, "responses", "id", input="say: one") for _ in range(6)]
        secrets = [await made(http, "realtime/client_secrets", "value") for _ in range(6)]
        assert {owner(id) for id in kept} == {owner(value) for value in secrets} == {"a", "b"}
        await two.restart_proxy()
        for one in sorted(clients, key=lambda one: one.server):  # each server's in a row, no turn about
            await one.lose()
            before = one.server
            await one.come_back()
            assert one.server == before
            await one.works()
        for id in sorted(kept, key=owner):
            assert (await http.get(f"/v1/responses/{id}")).json()["id"] == id
            assert owner(await made(http, "responses", "id", input="say: two", previous_response_id=id)) == owner(id)
    for value in sorted(secrets, key=owner):
        await opens(two, value)


async def _made_by(two: Fronts, server: str) -> str:
    """The id of a response that this server keeps."""
    async with client_of(two) as http, asyncio.timeout(TIMEOUT_S):
        while owner(id := await made(http, "responses", "id", input="say: one")) != server:
            pass
    return id


async def hung_up(http: httpx.AsyncClient, path: str) -> httpx.Response:
    """What is said to whoever hangs up a call that is over: a moment behind its last event."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            gone = await http.post(f"{path}/hangup")
            if gone.status_code != 200:
                return gone
            await asyncio.sleep(0.05)


async def test_a_call_is_found_by_those_beside_it(shared: Fronts) -> None:
    async with client_of(shared) as http, AsyncExitStack() as stack:
        calls = list[str]()
        for _ in range(4):
            caller = Caller(None)  # pyright: ignore[reportArgumentType]
            stack.push_async_callback(caller.hang_up)
            answer = await http.post("/v1/realtime/calls", content=await caller.offer(), headers=SDP)
            calls.append(answer.headers["location"])
        assert {owner(path.rpartition("/")[2]) for path in calls} == {"a", "b"}
        for path in sorted(calls, key=owner):
            async with socket(shared, f"?call_id={path.rpartition('/')[2]}") as beside:
                assert json.loads(await beside.recv())["type"] == "session.created"
                assert (await http.post(f"{path}/hangup")).status_code == 200
                async for _ in beside:  # to its end
                    pass
            gone = await hung_up(http, path)
            assert gone.json()["error"]["code"] == "call_not_found"
            assert "proxy" not in gone.text, "the server whose call it was answered"


async def test_an_id_that_is_over_is_answered_by_the_server_whose_it_was(shared: Fronts) -> None:
    """On every way on which ids come: elsewhere it would be said who made it."""
    async with client_of(shared) as http, AsyncExitStack() as stack:
        tokens = {one.server: one.token for one in await held(shared, stack, 2)}

        async def said_to(name: str) -> dict[str, str]:
            number = "0" * 32
            token = f"{tokens.get(name, f'resume_{name}_0').rpartition('_')[0]}_{number}"
            answers = {
                "call": await http.post(f"/v1/realtime/calls/rtc_{name}_{number}/hangup"),
                "response": await http.get(f"/v1/responses/resp_{name}_{number}"),
                "live": await http.post(f"/v1/live/sessions/live_{name}_{number}/hangup"),
                "new offer": await http.post(
                    "/v1/realtime/calls", params={"resume": token}, content="v=0", headers=SDP
                ),
            }
            found = {way: answer.text for way, answer in answers.items()}
            with pytest.raises(InvalidStatus) as refused:
                await socket(shared, path=f"/v1/live/sessions/live_{name}_{number}/attach")
            return found | {"attach": (refused.value.response.body or b"").decode()}

        for name in ("a", "b") * 2:
            for way, said in (await said_to(name)).items():
                assert "made it" not in said, (name, way, said)
        for way, said in (await said_to("c")).items():
            assert "'c' made it" in said, f"the control: {way}, {said}"


async def test_metrics_and_admin_are_nobodys(shared: Fronts) -> None:
    async with client_of(shared) as http:
        for path in ("/metrics", "/%6detrics", "/admin/workers", "/%61dmin/workers"):
            assert (await http.get(path)).status_code == 404, path
            assert (await http.get(f"{shared.url('a')}{path}")).status_code != 404, path
        assert (await http.get("/health")).status_code == 200


async def test_of_forty_sessions_a_drain_drops_none_and_those_of_a_killed_server_get_one_error(two: Fronts) -> None:
    async with AsyncExitStack() as stack:
        clients = await held(two, stack, 40)
        of = {name: [one for one in clients if one.server == name] for name in ("a", "b")}
        assert [len(of["a"]), len(of["b"])] == [20, 20]

        caller = Caller(None)  # pyright: ignore[reportArgumentType]
        stack.push_async_callback(caller.hang_up)
        call, kept = await called(two, caller, "a"), await _made_by(two, "b")
        await two.tell("set server parley/a state drain")
        for one in of["a"][:10]:
            await one.lose()
            await one.come_back()
        await asyncio.gather(*(one.works() for one in clients))
        assert await two.sessions("a") == 21, "nobody was dropped"
        async with client_of(two) as http, socket(two, f"?call_id={call}") as beside:
            await Client(beside).ask("say: still here", output_modalities=["text"])
            assert (await http.post(f"/v1/realtime/calls/{call}/hangup")).status_code == 200
        late = await held(two, stack, 4)
        assert {one.server for one in late} == {"b"}
        for one in of["a"]:
            await one.close()
        async with asyncio.timeout(PATIENCE_S):
            while await two.sessions("a"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await two.processes["a"].end() == 0
        two.processes["a"].start()
        await two.tell("set server parley/a state ready")
        await two.up("a")

        speaking = of["b"][:4]
        for one in speaking:
            await one.begins()
        async with client_of(two) as http:
            two.processes["b"].send(signal.SIGSTOP)  # it takes what comes, and has yet to answer
            body = {"model": "script", "input": "say: two", "previous_response_id": kept}
            asked = asyncio.create_task(http.post("/v1/responses", json=body))
            await asyncio.sleep(0.2)
            await two.processes["b"].end(signal.SIGKILL)
            assert (await asked).status_code == 502
            assert (await asked).json()["error"]["code"] == "server_gone"
        await asyncio.gather(*(one.is_cut() for one in (*of["b"], *late)))
        for one in (*of["b"], *late):
            refused = await _refused(one)
            assert refused.response.status_code == 404
            error = json.loads(refused.response.body or b"")["error"]
            assert error["code"] == "resume_not_found"
            assert "'b' is gone" in error["message"]
            await one.open()
            assert one.server == "a"
            await one.works()


async def test_a_server_whose_workers_are_gone_gets_no_new_sessions_and_keeps_its_own(tmp_path: Path) -> None:
    async with (
        fronts(tmp_path, a={"join": f"127.0.0.1:{free_port()}", "drain_s": 0}) as two,
        AsyncExitStack() as stack,
    ):
        clients = await held(two, stack, 4)
        await two.processes["worker"].end()
        await two.until("a", "NOLB")
        assert {one.server for one in await held(two, stack, 4)} == {"b"}
        for one in clients:
            before = one.server
            await one.lose()
            await one.come_back()
            assert one.server == before
        assert {one.server for one in clients} == {"a", "b"}
        two.processes["worker"].start()
        await two.until("a", "UP")
        for one in clients:
            await one.works()


async def _refused(one: Held) -> InvalidStatus:
    await one.lose()
    with pytest.raises(InvalidStatus) as refused:
        await one.come_back()
    return refused.value


async def test_a_full_server_sends_its_clients_on_and_all_full_is_one_error(tmp_path: Path) -> None:
    few = {"limits": {"sessions": 2, "key_share": 1.0}}
    async with fronts(tmp_path, a=few, b=few) as two, AsyncExitStack() as stack:
        own = [await stack.enter_async_context(_direct(two, "a")) for _ in range(2)]
        clients = await held(two, stack, 2)
        assert [one.server for one in clients] == ["b", "b"]
        with pytest.raises(InvalidStatus) as refused:
            await Held(two).open()
        assert json.loads(refused.value.response.body or b"")["error"]["code"] == "server_full"
        assert len(own) == 2
        for name in ("a", "b"):
            await two.processes[name].end(signal.SIGKILL)
            await two.until(name, "DOWN")
        with pytest.raises(InvalidStatus) as refused:
            await Held(two).open()
        assert json.loads(refused.value.response.body or b"")["error"]["code"] == "no_server"


def _direct(two: Fronts, server: str) -> connect:
    return connect(f"{two.url(server, 'ws')}/v1/realtime", additional_headers=BEARER)


SOCAT = """#!{python}
import socket, sys
with socket.socket(socket.AF_UNIX) as one:
    one.connect(sys.argv[2])
    one.sendall(sys.stdin.buffer.read())
    sys.stdout.buffer.write(one.makefile("rb").read())
"""
SYSTEMCTL = "#!/bin/sh\nkill -TERM {pid}\n"


async def test_the_page_s_way_to_take_a_server_out_waits_for_its_sessions(two: Fronts, tmp_path: Path) -> None:
    """Its addresses are the test's; of socat and systemctl, which are not everywhere, only what it asks of them."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not here")
    (code,) = [one.code for one in ALL if one.kind == "drain"]
    for written, here in (("http://10.0.0.3:8000", two.url("a")), ("/run/haproxy/parley.sock", str(two.admin))):
        assert written in code
        code = code.replace(written, here)
    a = two.processes["a"].running
    assert a is not None
    for name, program in (("socat", SOCAT.format(python=sys.executable)), ("systemctl", SYSTEMCTL.format(pid=a.pid))):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(program)
        (tmp_path / "bin" / name).chmod(0o755)
    env = {**os.environ, "KEY": KEY, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    async with connect(f"{two.url('a', 'ws')}/v1/realtime", additional_headers=BEARER):
        taking_out = await asyncio.create_subprocess_exec("bash", "-euc", code, env=env)
        await two.until("a", "DRAIN")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(taking_out.wait()), 1)
        assert a.poll() is None
    assert await asyncio.wait_for(taking_out.wait(), PATIENCE_S) == 0
    assert await asyncio.to_thread(a.wait, PATIENCE_S) == 0
