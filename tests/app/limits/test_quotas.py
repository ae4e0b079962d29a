"""What one key, and one address, may hold of a server's places."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.access.client_secrets import ClientSecrets
from app.limits.principal import Principal
from app.limits.quotas import QuotaExceeded, Quotas
from app.settings import Limits, settings_of
from engine import ConfigError
from engine.control.pool import StagePool
from tests.app.rig import Running, eventually, keys_file, running, script_spec, talking

ALICE, BOB = {"Authorization": "Bearer sk-alice-0123456789"}, {"Authorization": "Bearer sk-bob-0123456789ab"}


def shares_of(several: bool = True, **limits: Any) -> Quotas:
    return Quotas(Limits(**limits), lambda: several)


def taken(quotas: Quotas, caller: Principal, kind: Any = "sessions") -> int:
    """How many more this caller gets."""
    for count in range(1000):
        try:
            quotas.take(kind, caller)
        except QuotaExceeded:
            return count
    raise AssertionError("no end")


def test_one_of_several_keys_leaves_some_for_the_others() -> None:
    quotas = shares_of(sessions=8)
    assert taken(quotas, Principal("alice")) == 4
    assert taken(quotas, Principal("bob")) == 4
    quotas.give("sessions", Principal("alice"))
    assert taken(quotas, Principal("alice")) == 1
    assert taken(quotas, Principal("alice"), "calls") == 8


def test_the_only_key_may_have_all_and_so_may_everybody_without_keys() -> None:
    quotas = shares_of(several=False, sessions=8)
    for _ in range(8):
        quotas.take("sessions", Principal("alice", address="127.0.0.1"))


def test_an_address_leaves_some_for_the_others_whatever_its_keys() -> None:
    quotas = shares_of(sessions=8)
    assert taken(quotas, Principal("alice", address="10.0.0.1")) == 4
    assert taken(quotas, Principal("bob", address="10.0.0.1")) == 2
    assert taken(quotas, Principal("bob", address="2001:db8:1:2::1")) == 2


def test_an_ipv6_network_is_one_address_and_this_machine_is_not_bounded() -> None:
    quotas = shares_of(several=False, sessions=8)
    assert taken(quotas, Principal(address="2001:db8:1:2::1")) == 6
    assert taken(quotas, Principal(address="2001:db8:1:2::2")) == 0
    assert taken(quotas, Principal(address="2001:db8:1:3::1")) == 6
    for _ in range(20):
        quotas.take("sessions", Principal(address="::1"))


def test_a_share_is_one_place_at_least_and_may_be_all() -> None:
    assert taken(shares_of(calls=1), Principal("alice"), "calls") == 1
    assert taken(shares_of(calls=5, key_share=1.0), Principal("alice"), "calls") == 5


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["10.0.0.1", "10.0.0.2", "::1"]), st.booleans())))
def test_what_is_given_back_is_there_again_and_nothing_is_kept(steps: list[tuple[str, str, bool]]) -> None:
    quotas, held = shares_of(sessions=6), list[Principal]()
    for owner, address, takes in steps:
        if takes:
            caller = Principal(owner, address=address)
            try:
                quotas.take("sessions", caller)
            except QuotaExceeded:
                continue
            held.append(caller)
        elif held:
            quotas.give("sessions", held.pop())
        assert sum(count for _, _, count in quotas.held()) == len(held)
        assert all(sum(one.owner == owner for one in held) <= 3 for owner in "ab")
    for caller in held:
        quotas.give("sessions", caller)
    assert not quotas._keys
    assert not quotas._addresses


def test_a_refusal_names_the_key_and_how_many_it_has() -> None:
    quotas = shares_of(secrets=2)
    quotas.take("secrets", Principal("alice"))
    with pytest.raises(QuotaExceeded, match="The key 'alice' has used up its quota, 1 client secrets"):
        quotas.take("secrets", Principal("alice"))
    assert list(quotas.refused()) == [("secrets", "alice", 1)]


def test_secrets_that_expire_or_are_withdrawn_make_room_in_their_maker_s_share() -> None:
    now_s = 0.0
    secrets = ClientSecrets(4, lambda: now_s, shares_of(secrets=4))
    alice = Principal("alice")
    short, _ = secrets.issue({}, 10, alice), secrets.issue({}, 10, alice)
    assert (len(secrets.withdraw(Principal("bob"))), len(secrets.withdraw(alice, short.value))) == (0, 1)
    secrets.issue({}, 20, alice)
    now_s = 10.0
    secrets.issue({}, 20, alice)
    assert len(secrets.withdraw(alice)) == 2


@pytest.mark.parametrize("share", [0, -1, 1.5])
def test_a_share_is_a_part(share: float) -> None:
    for name in ("answers_share", "key_share", "address_share"):
        with pytest.raises(ConfigError, match=rf"server\.limits\.{name}: must be greater than 0 and at most 1"):
            settings_of({"limits": {name: float(share)}})


@pytest.fixture
async def shared_by_two(tmp_path: Path) -> AsyncGenerator[Running]:
    limits = {"sessions": 4, "answers": 2, "secrets": 4}
    async with running(
        script_spec(
            keys_file=keys_file(tmp_path, "alice: sk-alice-0123456789", "bob: sk-bob-0123456789ab"), limits=limits
        )
    ) as server:
        yield server


async def refused(server: Running, query: str = "", **options: Any) -> tuple[int, str, str]:
    with pytest.raises(InvalidStatus) as told:
        await connect(server.ws + query, **options)
    response = told.value.response
    return response.status_code, json.loads(response.body)["error"]["code"], response.headers["retry-after"]


async def test_sessions_of_one_key_leave_some_for_another(shared_by_two: Running) -> None:
    """F31: one client's idle sockets took all sessions."""
    server = shared_by_two
    async with talking(server, additional_headers=ALICE), talking(server, additional_headers=ALICE):
        assert await refused(server, additional_headers=ALICE) == (429, "share_full", "5")
        assert await refused(server, "?wait=true", additional_headers=ALICE) == (429, "share_full", "5")
        async with talking(server, additional_headers=BOB) as bob:
            await bob.alive()
            assert server.metric("parley_share_held", kind="sessions", key="alice") == 2
            assert server.metric("parley_share_held", kind="sessions", key="bob") == 1
        assert server.metric("parley_share_refused_total", kind="sessions", key="alice") == 2
    await server.empty()
    await eventually(lambda: not server.metric("parley_share_held", kind="sessions", key="alice"))
    async with talking(server, additional_headers=ALICE) as again:
        await again.alive()


@pytest.mark.parametrize(("path", "field"), [("/v1/chat/completions", "messages"), ("/v1/responses", "input")])
async def test_answers_over_http_of_one_key_leave_some_for_another(
    path: str, field: str, shared_by_two: Running
) -> None:
    body = {"model": "x", field: [{"role": "user", "content": "long 400"}], "stream": True}
    short = {"model": "x", field: [{"role": "user", "content": "say: hello"}]}
    async with httpx.AsyncClient(base_url=shared_by_two.http) as http:
        async with http.stream("POST", path, json=body, headers=ALICE) as under_way:
            assert under_way.status_code == 200
            answer = await http.post(path, json=short, headers=ALICE)
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "share_full")
            assert "retry-after" in answer.headers
            assert (await http.post(path, json=short, headers=BOB)).status_code == 200
        await eventually(lambda: not shared_by_two.metric("parley_share_held", kind="answers", key="alice"))
        assert (await http.post(path, json=short, headers=ALICE)).status_code == 200


@pytest.mark.fault("S2.2")
async def test_secrets_of_one_key_leave_some_for_another(shared_by_two: Running) -> None:
    """F13: one key filled all of them for two hours."""
    async with httpx.AsyncClient(base_url=shared_by_two.http) as http:
        path = "/v1/realtime/client_secrets"
        answers = [await http.post(path, json={}, headers=ALICE) for _ in range(3)]
        assert [one.status_code for one in answers] == [200, 200, 429]
        assert (await http.post(path, json={}, headers=BOB)).status_code == 200
        gone = await http.post(f"{path}/withdraw", json={}, headers=ALICE)
        assert gone.json() == {"withdrawn": 2}
        assert (await http.post(path, json={}, headers=ALICE)).status_code == 200


async def test_a_session_is_taken_up_again_by_its_own_key_only(shared_by_two: Running) -> None:
    server = shared_by_two
    async with talking(server, additional_headers=ALICE) as alice:
        token = (await alice.configure(parley={"resume": True}))["parley"]["resume_token"]
        seq = alice.events[-1]["parley"]["seq"]
        with pytest.raises(InvalidStatus) as told:
            await connect(f"{server.ws}?resume={token}&after={seq}", additional_headers=BOB)
        assert told.value.response.status_code == 404
        async with connect(f"{server.ws}?resume={token}&after={seq}", additional_headers=ALICE) as again:
            assert json.loads(await again.recv())["type"] == "session.updated"


async def test_a_withdrawn_secret_opens_nothing_and_ends_what_it_opened(shared_by_two: Running) -> None:
    """A page's leaked secret is not left to its last minute; other pages of the same key talk on."""
    server, path = shared_by_two, "/v1/realtime/client_secrets"
    async with httpx.AsyncClient(base_url=server.http) as http:
        leaked, kept = [(await http.post(path, json={}, headers=ALICE)).json()["value"] for _ in range(2)]
        of_leaked, of_kept = ({"Authorization": f"Bearer {one}"} for one in (leaked, kept))
        async with (
            talking(server, additional_headers=of_leaked) as page,
            talking(server, additional_headers=of_kept) as other,
        ):
            stranger = await http.post(f"{path}/withdraw", json={"value": leaked}, headers=BOB)
            assert (stranger.status_code, stranger.json()["error"]["code"]) == (404, "client_secret_not_found")
            assert (await http.post(f"{path}/withdraw", json={"value": leaked}, headers=ALICE)).json() == {
                "withdrawn": 1
            }
            assert (await page.error())["code"] == "key_withdrawn"
            await page.socket.wait_closed()
            assert page.socket.close_code == 1008
            with pytest.raises(InvalidStatus):
                await connect(server.ws, additional_headers=of_leaked)
            await other.alive()


@pytest.mark.parametrize("keys", [True, False])
async def test_the_engine_is_told_whose_each_request_is(
    keys: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key's, and without keys the address's: where they wait for the engine, all take turns."""
    owners, lease = list[str](), StagePool.lease

    def told(pool: StagePool[Any], *args: Any, owner: str, **more: Any) -> Any:
        owners.append(owner)
        return lease(pool, *args, owner=owner, **more)

    monkeypatch.setattr(StagePool, "lease", told)
    file = {"keys_file": keys_file(tmp_path, "alice: sk-alice-0123456789")} if keys else {}
    messages = [{"role": "user", "content": "say: one"}]
    async with running(script_spec(**file)) as server, httpx.AsyncClient(base_url=server.http, headers=ALICE) as http:
        async with talking(server, additional_headers=ALICE) as client:
            await client.ask("say: one")
        said = len(owners)
        assert (await http.post("/v1/chat/completions", json={"model": "x", "messages": messages})).status_code == 200
        spoken = await http.post("/v1/audio/speech", json={"model": "x", "voice": "", "input": "say: one"})
        assert spoken.status_code == 200
    assert 0 < said < len(owners) - 1
    assert set(owners) == {"alice" if keys else "127.0.0.1"}
