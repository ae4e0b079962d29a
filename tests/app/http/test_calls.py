"""Offers that can't be answered, and what else is said to the routes of calls: one typed error, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from contextlib import AsyncExitStack, suppress
from typing import Any

import aioice.ice
import httpx
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app.refusal import Refusal
from app.settings import settings_of
from app.transports.webrtc.offer import MAX_CANDIDATES, checked
from engine import ConfigError
from tests.app.rig import TIMEOUT_S, Client, Running, eventually, keys_file
from tests.app.transports.webrtc.caller import Caller, calling
from tests.app.transports.webrtc.offers import corpus

CALLS = "/v1/realtime/calls"
SDP = {"content-type": "application/sdp"}


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


@pytest.fixture
async def offer() -> Any:
    caller = Caller(None)  # pyright: ignore[reportArgumentType]
    sdp = await caller.offer()
    await caller.hang_up()
    return sdp


async def post(server: Running, path: str = CALLS, **request: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.http, timeout=20) as http:
        return await http.post(path, **request)


def sockets() -> int:
    return len(psutil.Process().net_connections(kind="udp"))


BROKEN = {
    "empty": lambda sdp: "",
    "no SDP": lambda sdp: "hello",
    "half of it": lambda sdp: sdp[: len(sdp) // 2].rpartition("m=")[0],
    "two audio sections": lambda sdp: sdp + sdp[sdp.index("m=audio") : sdp.index("m=application")],
    "no audio": lambda sdp: sdp[: sdp.index("m=audio")] + sdp[sdp.index("m=application") :],
    "no Opus": lambda sdp: sdp.replace("opus/48000/2", "L16/48000/2"),
    "a bad fingerprint": lambda sdp: sdp.replace("sha-256 ", "sha-256 zz:"),
    "an old fingerprint": lambda sdp: sdp.replace("sha-256", "md5").replace("sha-384", "md5").replace("sha-512", "md5"),
    "no fingerprint": lambda sdp: "\r\n".join(line for line in sdp.split("\r\n") if "fingerprint" not in line),
    "no credentials": lambda sdp: "\r\n".join(line for line in sdp.split("\r\n") if "ice-ufrag" not in line),
    "10000 candidates": lambda sdp: sdp + "a=candidate:1 1 udp 1 127.0.0.1 9 typ host\r\n" * 1000,
    "too long": lambda sdp: sdp + "a=x:" + "y" * 70_000 + "\r\n",
}


@pytest.mark.fault("I1.1", "I1.3")
async def test_a_bad_offer_is_refused_and_leaves_nothing(offer: str, server: Running) -> None:
    before = sockets()
    for how, broken in BROKEN.items():
        answer = await post(server, content=broken(offer), headers=SDP)
        assert answer.status_code == 400, how
        assert answer.json()["error"]["code"] == "invalid_offer", how
        assert answer.json()["error"]["type"] == "invalid_request_error", how
    await server.empty()
    assert sockets() == before


@pytest.mark.fault("I1.2")
async def test_what_else_is_wrong_with_a_request(offer: str, server: Running) -> None:
    part = {"sdp": (None, offer, "application/sdp")}
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({"content": offer, "headers": {"content-type": "text/plain"}}, 415, "unsupported_media_type"),
        ({"content": offer}, 415, "unsupported_media_type"),
        ({"content": b"\xff\xfe", "headers": SDP}, 400, "invalid_offer"),
        ({"content": b"x" * 1_000_000, "headers": SDP}, 413, "request_too_large"),
        ({"files": {"other": (None, "x")}}, 400, "missing_required_parameter"),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400, "invalid_request"),
        ({"files": {**part, "session": (None, "{")}}, 400, "invalid_json"),
        ({"files": {**part, "session": (None, "[]")}}, 400, "invalid_type"),
        ({"files": {**part, "session": (None, '{"output_modalities": ["smell"]}')}}, 400, "invalid_value"),
    ]
    for request, status, code in wrong:
        answer = await post(server, **request)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert (await post(server, CALLS + "/rtc_1/hangup")).json()["error"]["code"] == "call_not_found"
    await server.empty()


@pytest.mark.fault("I1.1")
@pytest.mark.slow
async def test_an_offer_that_went_wrong_is_answered_or_refused(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Never a 500, never a traceback, and nothing is left. `make attacks` tries two thousand."""
    caller, before = Caller(None), sockets()  # pyright: ignore[reportArgumentType]
    caller.peer.addTransceiver("video")
    base = await caller.offer()
    await caller.hang_up()
    statuses = Counter[int]()

    async def offered(http: httpx.AsyncClient, body: bytes) -> None:
        answer = await http.post(CALLS, content=body, headers=SDP)
        statuses[answer.status_code] += 1
        if answer.status_code == 201:
            await http.post(f"{answer.headers['location']}/hangup")
        else:
            assert answer.json()["error"]["code"] == "invalid_offer", (body, answer.text)

    async with httpx.AsyncClient(base_url=server.http, timeout=TIMEOUT_S) as http:
        bodies = list(corpus(base, 200))
        for at in range(0, len(bodies), 4):
            await asyncio.gather(*(offered(http, body) for body in bodies[at : at + 4]))
    assert set(statuses) == {201, 400}
    assert min(statuses.values()) > 20
    await server.empty()
    await eventually(lambda: sockets() == before)
    gc.collect()  # a task that failed without a reader says so when it is collected
    assert not [one.message for one in caplog.records if one.exc_info or "Traceback" in one.getMessage()]


@pytest.mark.parametrize(
    "more",
    [
        "a=group:BUNDLE nobody 0\r\n",
        "a=mid:0\r\n" + "a=rtpmap:96 opus/48000/2\r\n" * 200,
        "a=rtcp-fb:* nack\r\n" * 300,
        "a=ice-ufrag:x\r\n",
    ],
    ids=["bundle of nothing", "formats", "feedback", "short ufrag"],
)
def test_what_aiortc_stumbles_over_is_refused_before_it_does(offer: str, more: str) -> None:
    with pytest.raises(Refusal):
        checked(offer + more if "group" not in more else offer.replace("a=group:BUNDLE 0 1\r\n", more))


@pytest.mark.fault("I1.1")
def test_candidates_that_lead_nowhere_are_left_out(offer: str) -> None:
    """A multicast group, everybody, nobody, a port that is none: a check of them would be a failure in a task."""
    line = "a=candidate:1 1 udp 2 {} {} typ host\r\n"
    ways = [("224.0.0.1", 9), ("255.255.255.255", 9), ("0.0.0.0", 9), ("::", 9), ("fe80::1%lo", 9), ("127.0.0.1", 0)]
    nowhere = "".join(line.format(*way) for way in [*ways, ("127.0.0.1", 65536), ("10.0.0.1", "x")])
    good = "".join(line.format(host, 9) for host in ("10.0.0.1", "::1", "2001:db8::1"))
    sdp = checked(offer + nowhere + good).sdp
    assert [line for line in sdp.splitlines() if "candidate" in line] == good.splitlines()


@given(st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.fault("I1.1")
def test_any_text_is_an_offer_or_refused(offer: str, data: st.DataObject) -> None:
    """Lines dropped, doubled, cut and made up: never anything but a Refusal."""
    lines = offer.split("\r\n")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        kind = data.draw(st.sampled_from(["drop", "double", "cut", "noise"]))
        noise = data.draw(st.text(max_size=40)) if kind == "noise" else ""
        lines[at : at + 1] = {"drop": [], "double": [lines[at]] * 2, "cut": [lines[at][:9]], "noise": [noise]}[kind]
        lines = lines or [""]
    with suppress(Refusal):
        checked("\r\n".join(lines))


@pytest.mark.fault("I1.3")
def test_candidates_are_plain_addresses(offer: str) -> None:
    """Names would have to be looked up, and the lookup would ask the network."""
    name = "a=candidate:1 1 udp 2 4f2b.local 9 typ host\r\n"
    tcp, plain = "a=candidate:1 1 tcp 2 127.0.0.1 9 typ host\r\n", "a=candidate:1 1 udp 2 127.0.0.1 9 typ host\r\n"
    sdp = checked(offer + name + tcp + plain + "a=end-of-candidates\r\n").sdp
    assert [line for line in sdp.splitlines() if "candidate" in line] == [plain.strip()]
    checked(offer + plain * MAX_CANDIDATES)
    assert plain.strip() in sdp
    assert plain.strip() not in checked(offer + plain, "8.8.8.8").sdp, "an address here, named by a client elsewhere"


async def test_the_settings_of_a_call_come_with_it(server: Running) -> None:
    session = {"type": "realtime", "instructions": "Be brief.", "output_modalities": ["text"]}
    async with calling(server, session) as call:
        begun = call.of("session.created")[0]["session"]
        assert (begun["instructions"], begun["output_modalities"]) == ("Be brief.", ["text"])


async def test_a_client_secret_opens_a_call_with_its_settings(serve_with: Any, tmp_path: Any) -> None:
    async with serve_with(keys_file=keys_file(tmp_path, "sesame-sesame-sesame")) as server:
        body = {"session": {"type": "realtime", "instructions": "Be kind.", "audio": {"output": {"speed": 1.25}}}}
        key = {"authorization": "Bearer sesame-sesame-sesame"}
        secret = (await post(server, "/v1/realtime/client_secrets", json=body, headers=key)).json()["value"]
        caller = Caller(server)
        assert (await post(server, content=await caller.offer(), headers=SDP)).status_code == 401
        more = {"audio": {"output": {"voice": "tone"}}}
        await caller.connect(more, authorization=f"Bearer {secret}")
        begun = caller.of("session.created")[0]["session"]
        assert (begun["instructions"], begun["audio"]["output"]["speed"]) == ("Be kind.", 1.25)
        await caller.hang_up()
        await server.empty()


@pytest.mark.fault("S1.3")
async def test_a_foreign_page_may_not_call(offer: str, server: Running) -> None:
    answer = await post(server, content=offer, headers={**SDP, "origin": "https://evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")


async def test_an_allowed_page_reads_where_its_call_is(offer: str, serve_with: Any) -> None:
    async with serve_with(allowed_origins=["https://app.example"]) as server:
        answer = await post(server, content=offer, headers={**SDP, "origin": "https://app.example"})
        assert "location" in answer.headers["access-control-expose-headers"].lower()
        await post(server, answer.headers["location"] + "/hangup")
        preflight = {"access-control-request-method": "POST", "access-control-request-headers": "x-openai-agents-sdk"}
        async with httpx.AsyncClient(base_url=server.http) as http:
            allowed = await http.options(CALLS, headers={"origin": "https://app.example", **preflight})
        assert "x-openai-agents-sdk" in allowed.headers["access-control-allow-headers"].lower()


async def test_there_is_room_for_so_many_calls(offer: str, serve_with: Any) -> None:
    async with serve_with(limits={"calls": 1}) as server, calling(server) as call:
        refused = await post(server, content=offer, headers=SDP)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_full")
        assert refused.headers["retry-after"]
        await call.hang_up()
        await server.empty()
        async with calling(server):
            pass


async def test_ice_servers_are_told(serve_with: Any) -> None:
    servers = [{"urls": ["turn:turn.example:3478"], "username": "ann", "credential": "secret"}]
    async with serve_with(ice_servers=servers) as server, httpx.AsyncClient(base_url=server.http) as http:
        assert (await http.get("/v1/realtime/ice-servers")).json() == {"ice_servers": servers}


def test_none_are_asked_by_default() -> None:
    assert settings_of({}).ice_servers == ()
    with pytest.raises(ConfigError, match=r"ice_servers\[0\].urls"):
        settings_of({"ice_servers": [{"urls": ["http://x"]}]})


class TestSideband:
    async def test_it_sees_and_speaks(self, server: Running) -> None:
        async with calling(server) as call, connect(f"{server.ws}?call_id={call.id}") as socket:
            side = Client(socket)
            begun = await side.until("session.created")
            assert begun["session"]["id"] == call.of("session.created")[0]["session"]["id"]
            await side.ask("say: one", output_modalities=["text"])
            assert (await call.until("response.done"))["response"]["output"][0]["content"][0]["text"] == "one"
            await call.say("say: two", output_modalities=["text"])
            await side.until("response.done")
            await call.until("response.done")
            both = ([event["event_id"] for event in one.of("response.done")] for one in (side, call))
            assert next(both) == next(both)

    async def test_it_leaves_without_ending_the_call_and_ends_with_it(self, server: Running) -> None:
        async with calling(server) as call:
            async with connect(f"{server.ws}?call_id={call.id}") as socket:
                await Client(socket).until("session.created")
            await call.say("say: still here", output_modalities=["text"])
            await call.until("response.done")
            async with connect(f"{server.ws}?call_id={call.id}") as socket:
                side = Client(socket)
                await side.until("session.created")
                await post(server, f"{CALLS}/{call.id}/hangup")
                with pytest.raises(ConnectionClosed):
                    await side.until("never")
        await server.empty()

    async def test_there_are_so_many_and_no_more(self, serve_with: Any) -> None:
        """One that leaves makes room for another one."""
        async with serve_with(limits={"sidebands": 2}) as server, calling(server) as call, AsyncExitStack() as sides:
            address = f"{server.ws}?call_id={call.id}"
            first = await sides.enter_async_context(connect(address))
            await sides.enter_async_context(connect(address))
            with pytest.raises(InvalidStatus) as refused:
                await connect(address)
            assert refused.value.response.status_code == 429
            assert json.loads(refused.value.response.body or b"")["error"]["code"] == "too_many_sidebands"
            await first.close()
            await sides.enter_async_context(await joined(address))
            await call.say("say: still here", output_modalities=["text"])
            await call.until("response.done")

    async def test_an_unknown_call_is_refused(self, server: Running) -> None:
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{server.ws}?call_id=rtc_1")
        assert refused.value.response.status_code == 404
        assert json.loads(refused.value.response.body or b"")["error"]["code"] == "call_not_found"


class TestWhose:
    """A call is its key's, and of the client secret that it was made with: of no other key's, and no other secret's."""

    @pytest.fixture
    async def two_keys(self, serve_with: Any, tmp_path: Any) -> Any:
        file = tmp_path / "keys"
        file.write_text(f"ann: {ANN}\nbob: {BOB}\n")
        file.chmod(0o600)
        async with serve_with(keys_file=str(file)) as server:
            yield server

    async def test_a_call_is_reached_by_those_whose_it_is(self, two_keys: Running) -> None:
        mine, others = [await secret_of(two_keys, ANN) for _ in range(2)]
        caller = Caller(two_keys)
        await caller.connect(authorization=f"Bearer {mine}")
        address = f"{two_keys.ws}?call_id={caller.id}"
        for stranger in (BOB, others, await secret_of(two_keys, BOB)):
            with pytest.raises(InvalidStatus) as refused:
                await connect(address, additional_headers=bearer(stranger))
            assert json.loads(refused.value.response.body or b"")["error"]["code"] == "call_not_found"
        for owner in (ANN, mine):
            async with connect(address, additional_headers=bearer(owner)) as socket:
                await Client(socket).until("session.created")
        hung_up = [(await post(two_keys, f"{CALLS}/{caller.id}/hangup", headers=bearer(key))) for key in (BOB, ANN)]
        assert [one.status_code for one in hung_up] == [404, 200]
        assert hung_up[0].json()["error"]["code"] == "call_not_found"
        await caller.closed()
        await caller.hang_up()
        await two_keys.empty()

    async def test_a_calls_secret_does_not_reach_what_its_key_made(self, two_keys: Running) -> None:
        caller = Caller(two_keys)
        await caller.connect(authorization=f"Bearer {ANN}")
        with pytest.raises(InvalidStatus):
            await connect(
                f"{two_keys.ws}?call_id={caller.id}", additional_headers=bearer(await secret_of(two_keys, ANN))
            )
        await caller.hang_up()
        await two_keys.empty()


class TestOffersThatNobodyFollows:
    async def test_they_never_take_all_calls(self, offer: str, serve_with: Any) -> None:
        """The others connect meanwhile; a client that has connected takes no place among the offers."""
        async with serve_with(limits={"offers": 2, "calls": 4}) as server:
            for status in (201, 201, 503):
                answer = await post(server, content=offer, headers=SDP)
                assert answer.status_code == status
            assert answer.json()["error"]["code"] == "server_full"
            assert answer.headers["retry-after"]

    async def test_who_has_connected_is_no_offer_any_more(self, offer: str, serve_with: Any) -> None:
        async with serve_with(limits={"offers": 1}) as server, calling(server), calling(server) as call:
            assert (await post(server, content=offer, headers=SDP)).status_code == 201
            assert (await post(server, content=offer, headers=SDP)).status_code == 503
            await call.say("say: still here", output_modalities=["text"])
            await call.until("response.done")

    async def test_a_key_leaves_some_for_the_others(self, offer: str, serve_with: Any, tmp_path: Any) -> None:
        file = tmp_path / "keys"
        file.write_text(f"ann: {ANN}\nbob: {BOB}\n")
        file.chmod(0o600)
        async with serve_with(keys_file=str(file), limits={"offers": 2}) as server:
            statuses = [
                (await post(server, content=offer, headers=SDP | bearer(key))).status_code for key in (ANN, ANN, BOB)
            ]
            assert statuses == [201, 429, 201]


ANN, BOB = "ann's-key-of-some-length", "bob's-key-of-some-length"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def joined(address: str) -> Any:
    """A sideband, as soon as there is room for it: the server sees a close a little later than its client."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await connect(address)
            except InvalidStatus:
                await asyncio.sleep(0.01)


async def secret_of(server: Running, key: str) -> str:
    return (await post(server, "/v1/realtime/client_secrets", json={}, headers=bearer(key))).json()["value"]


class TestEnds:
    @pytest.mark.parametrize("how", ["channel", "peer", "drain", "vanishes before the answer"])
    async def test_a_call_ends_and_nothing_is_left(self, how: str, server: Running, offer: str) -> None:
        before = sockets()
        if how == "vanishes before the answer":
            with pytest.raises(httpx.TimeoutException):
                async with httpx.AsyncClient(base_url=server.http, timeout=0.001) as http:
                    await http.post(CALLS, content=offer, headers=SDP)
        else:
            async with calling(server) as call:
                await call.say("long 100")
                await call.sound()
                match how:
                    case "channel":
                        call.channel.close()
                    case "peer":
                        await call.peer.close()
                    case _:
                        drain = asyncio.create_task(server.service.drain())
                        await call.send("response.cancel")
                        await drain
                if how != "peer":
                    await call.closed()
        await server.empty()
        await eventually(lambda: sockets() == before)

    async def test_one_that_never_connects_is_forgotten(
        self, offer: str, server: Running, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("app.transports.webrtc.peer_connection.FOLLOW_S", 0.2)
        assert (await post(server, content=offer, headers=SDP)).status_code == 201
        await server.empty()
