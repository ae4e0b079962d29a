"""Files of keys: names and keys, one a line; what is no such line is told without the key."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.access.api_keys import MIN_CHARS, ApiKey, ApiKeys, read_keys
from engine import ConfigError
from tests.app.rig import eventually, keys_file, running, script_spec, talking


def test_a_file_that_is_missing_or_empty_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.keys_file: cannot read the key file"):
        read_keys(str(tmp_path / "none"))
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(ConfigError, match="contains no key"):
        read_keys(str(tmp_path / "empty"))
    assert read_keys(None) == ()


def test_a_key_has_the_name_before_it_or_one_of_its_digest(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# family\nalice: sk-one\n\n  bob:\tsk:two  \nsk-three\nsk:four\n")
    alice, bob, third, fourth = read_keys(str(file))
    assert (alice, bob) == (ApiKey("alice", "sk-one"), ApiKey("bob", "sk:two"))
    assert (third.value, fourth.value) == ("sk-three", "sk:four")
    assert third.name.startswith("key-")
    assert len(third.name) == len("key-") + 8
    assert "three" not in third.name
    assert "sk-one" not in repr(alice)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alice: sk-a\nalice: sk-b\n", "line 2: this name or key is already in the file"),
        ("alice: sk-a\nbob: sk-a\n", "line 2: this name or key is already in the file"),
        ("al/ice: sk-a\n", "line 1: a name must consist of 1 to 64"),
        (f"{'a' * 65}: sk-a\n", "line 1: a name must consist of 1 to 64"),
        ("alice sk-a\n", "line 1: a key must not contain spaces"),
        ("alice: sk-a sk-b\n", "line 1: a key must not contain spaces"),
    ],
)
def test_a_line_that_is_none_is_told_by_its_number_and_without_the_key(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ConfigError, match=message) as told:
        read_keys(str(tmp_path / "keys"))
    assert "sk-" not in str(told.value)


def test_only_a_whole_key_has_an_owner() -> None:
    keys = ApiKeys([ApiKey("alice", "sk-one"), ApiKey("bob", "sk-two")])
    assert [keys.owner(one) for one in ("sk-one", "sk-two", "sk-", "", "alice", "sk-\udcff")] == ["alice", "bob"] + [
        None
    ] * 4
    assert keys
    assert not ApiKeys()


ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789ab"


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o604, 0o602])
def test_a_server_takes_no_file_that_others_can_read_or_write(mode: int, tmp_path: Path) -> None:
    """F28: one of mode 0666 was taken without a word, although the token's file was checked."""
    path = Path(keys_file(tmp_path, ALICE))
    assert ApiKeys.of_file(str(path), "server.keys_file").owner(ALICE)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"server.keys_file: Other users .* can read {path}, .*chmod 600 {path}"):
        ApiKeys.of_file(str(path), "server.keys_file")


def test_a_server_takes_no_key_that_can_be_guessed(tmp_path: Path) -> None:
    """F28: a key of one letter was taken."""
    short = keys_file(tmp_path, "a" * MIN_CHARS, "bob: " + "b" * (MIN_CHARS - 1))
    with pytest.raises(ConfigError, match="the key 'bob' is too short; use at least 16 characters") as told:
        ApiKeys.of_file(short, "server.keys_file")
    assert "bbb" not in str(told.value)
    assert read_keys(short)  # a client's key is what another server asks for


def replace(path: str, *lines: str) -> None:
    """As a careful administrator does it: the file is a whole one at any time."""
    new = keys_file(Path(path).parent, *lines, name="new")
    os.replace(new, path)


def test_a_changed_file_is_read_again_and_tells_which_keys_are_gone(tmp_path: Path) -> None:
    path, gone = keys_file(tmp_path, f"alice: {ALICE}", f"bob: {BOB}"), list[str]()
    keys = ApiKeys.of_file(path, "server.keys_file")
    keys.withdrawn = gone.append
    keys.refresh()
    assert (keys.owner(ALICE), keys.owner(BOB), gone) == ("alice", "bob", [])
    replace(path, f"alice: {ALICE}-new", "carol: sk-carol-0123456789")
    keys.refresh()
    assert [keys.owner(one) for one in (ALICE, f"{ALICE}-new", BOB)] == [None, "alice", None]
    assert gone == ["alice", "bob"]


async def test_a_changed_file_counts_for_those_who_read_the_metrics_too(tmp_path: Path) -> None:
    own = keys_file(tmp_path, ALICE, name="metrics")
    section = {"keys_file": keys_file(tmp_path, f"bob: {BOB}"), "metrics_key_file": own}
    async with running(script_spec(**section)) as server, httpx.AsyncClient(base_url=server.http) as http:

        async def statuses() -> list[int]:
            given = [{"Authorization": f"Bearer {key}"} for key in (ALICE, f"{ALICE}-new")]
            return [(await http.get("/metrics", headers=headers)).status_code for headers in given]

        assert await statuses() == [200, 401]
        replace(own, f"{ALICE}-new")
        assert await statuses() == [401, 200]


@pytest.mark.parametrize("lines", [(), ("short",), ("a b",), None])
def test_a_file_that_cannot_be_used_changes_nothing_and_is_told_once(
    lines: tuple[str, ...] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A slip of an editor must neither lock everybody out nor let everybody in."""
    caplog.set_level("INFO", "parley")
    path = keys_file(tmp_path, f"alice: {ALICE}")
    keys = ApiKeys.of_file(path, "server.keys_file")
    if lines is None:
        Path(path).unlink()
    else:
        replace(path, *lines)
    for _ in range(3):
        keys.refresh()
        assert keys.owner(ALICE) == "alice"
    assert caplog.text.count("keys.unusable") == 1
    replace(path, f"bob: {BOB}")
    keys.refresh()
    assert (keys.owner(ALICE), keys.owner(BOB)) == (None, "bob")


@pytest.mark.fault("S2.1", "S2.2")
async def test_a_withdrawn_key_ends_what_it_opened_and_what_its_secrets_opened(tmp_path: Path) -> None:
    """F28: it was good until the restart. Others talk on, and a new key is good at once."""
    path = keys_file(tmp_path, f"alice: {ALICE}", f"bob: {BOB}")
    alice, bob = ({"Authorization": f"Bearer {key}"} for key in (ALICE, BOB))
    async with running(script_spec(keys_file=path)) as server, httpx.AsyncClient(base_url=server.http) as http:
        secret = (await http.post("/v1/realtime/client_secrets", json={}, headers=alice)).json()["value"]
        page_key = {"Authorization": f"Bearer {secret}"}
        async with (
            talking(server, additional_headers=alice) as hers,
            talking(server, additional_headers=page_key) as page,
            talking(server, additional_headers=bob) as his,
        ):
            replace(path, f"bob: {BOB}", "carol: sk-carol-0123456789")
            assert (await http.get("/livez")).status_code == 200  # any request has the file looked at
            for ended in (hers, page):
                assert (await ended.error())["code"] == "key_withdrawn"
                await ended.socket.wait_closed()
                assert ended.socket.close_code == 1008
            for headers in (alice, page_key):
                with pytest.raises(InvalidStatus) as refused:
                    await connect(server.ws, additional_headers=headers)
                assert json.loads(refused.value.response.body)["error"]["code"] == "invalid_api_key"
            await his.alive()
            async with talking(server, additional_headers={"Authorization": "Bearer sk-carol-0123456789"}) as carol:
                await carol.alive()
        await eventually(lambda: not list(server.service.admission.quotas.held()))
