"""The store of facts with a real SQLite file: scopes, limits, deletion without remains, and unusable files."""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from app.facts import Fact, FactStore, file
from app.facts.file import VERSION
from app.facts.store import MOST_NAME, MOST_VALUE, MOST_WAITING, MemoryUnavailable
from app.refusal import Refusal
from app.settings import MemorySettings
from engine import ConfigError


@asynccontextmanager
async def opened(path: Path, facts: int = 50, key_mb: float = 1.0) -> AsyncGenerator[FactStore]:
    store = FactStore(MemorySettings(path=str(path), facts=facts, key_mb=key_mb), now=lambda: 1000.0)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "facts.sqlite"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[FactStore]:
    async with opened(path) as one:
        yield one


async def names(store: FactStore, owner: str, user: str | None = None) -> list[str]:
    return [fact.name for fact in await store.facts(owner, user)]


async def test_a_fact_belongs_to_one_key_and_one_user(store: FactStore) -> None:
    for owner, user in (("ann", ""), ("ann", "u1"), ("ben", "u1")):
        await store.put(owner, user, "pet", f"pet of {owner} {user}")
    assert [fact.value for fact in await store.facts("ann", "u1")] == ["pet of ann u1"]
    assert [fact.user for fact in await store.facts("ann")] == ["", "u1"]
    assert await store.delete("ben") == 1
    assert await store.delete("ann", "u2", "pet") == 0
    assert await store.delete("ann", "u1", "pet") == 1
    assert await names(store, "ann") == ["pet"]


async def test_a_name_has_one_value_on_one_line(store: FactStore, path: Path) -> None:
    await store.put("ann", "", "pet", "a hedgehog")
    fact = await store.put("ann", "", " pet ", "a\n- fake: fact")
    assert (fact.name, fact.value, fact.updated_at) == ("pet", "a - fake: fact", 1000)
    assert await store.facts("ann") == (fact,)
    assert b"hedgehog" not in await asyncio.to_thread(path.read_bytes)


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        (" ", "x", "name"),
        ("x" * (MOST_NAME + 1), "x", "name"),
        ("a/b", "x", "name"),
        ("a", "", "value"),
        ("a", "x" * (MOST_VALUE + 1), "value"),
        ("a", "\ud800", "value"),
        ("a\0", "x", "name"),
    ],
)
async def test_wrong_facts_are_refused(store: FactStore, name: str, value: str, param: str) -> None:
    with pytest.raises(Refusal) as refused:
        await store.put("ann", "", name, value)
    assert refused.value.param == param
    assert await store.facts("ann") == ()


async def test_the_memory_of_a_user_and_of_a_key_can_be_full(path: Path) -> None:
    async with opened(path, facts=2, key_mb=0.001) as store:
        for name in ("a", "b", "b"):
            await store.put("ann", "u1", name, "x" * 300)
        with pytest.raises(Refusal, match="2 facts"):
            await store.put("ann", "u1", "c", "x")
        with pytest.raises(Refusal, match=r"0\.001 MB"):
            await store.put("ann", "u2", "c", "ä" * 250)
        await store.put("ben", "u1", "c", "ä" * 250)
        assert await names(store, "ann") == ["a", "b"]


def test_the_file_is_for_its_owner_only(path: Path) -> None:
    with closing(FactStore(MemorySettings(path=str(path)))):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        FactStore(MemorySettings(path=str(path)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_removed_text_stays_in_the_file(path: Path, seed: int) -> None:
    """Rows move between pages as others come and go. Without VACUUM, a removed value stays in each of these files."""
    file.prepare(path)
    dice = random.Random(seed)
    alive: dict[tuple[str, str, str], str] = {}
    with file.transaction(path) as db:
        for number in range(2000):
            key = (dice.choice("abcd"), f"u{dice.randrange(50)}", f"n{dice.randrange(30)}")
            if dice.random() < 0.55:
                alive[key] = f"<{number}>" + "x" * dice.randrange(600)
                file.store(db, key[0], Fact(key[1], key[2], alive[key], number))
            elif alive:
                key = dice.choice(list(alive))
                del alive[key]
                assert file.delete(db, *key) == 1
    file.clean(path)
    marks = {value.partition(">")[0] + ">" for value in alive.values()}
    assert set(re.findall(r"<\d+>", path.read_bytes().decode("latin-1"))) == marks
    assert [one.name for one in path.parent.iterdir()] == [path.name]


async def test_remains_are_removed_once_the_file_is_free_again(
    store: FactStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned = list[Path]()

    def locked(_: Path) -> None:
        raise sqlite3.OperationalError("disk full")

    await store.put("ann", "", "pet", "a hedgehog")
    with monkeypatch.context() as patch:
        patch.setattr("app.facts.file.clean", locked)
        with pytest.raises(MemoryUnavailable):
            await store.delete("ann")
    monkeypatch.setattr("app.facts.file.clean", cleaned.append)
    assert await store.delete("ann") == 0
    assert await store.delete("ann") == 0
    assert cleaned == [path]


async def test_a_locked_file_is_an_error_until_it_is_free(store: FactStore, path: Path) -> None:
    await store.put("ann", "", "pet", "a hedgehog")
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(MemoryUnavailable, match="another process has locked the file"):
            await store.facts("ann")
        with pytest.raises(ConfigError, match="another process has locked the file"):
            FactStore(MemorySettings(path=str(path)))
    assert await names(store, "ann") == ["pet"]


async def test_the_requests_of_one_key_that_wait_are_limited(store: FactStore) -> None:
    waiting = [asyncio.ensure_future(store.facts("ann")) for _ in range(MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(MemoryUnavailable, match="too many"):
        await store.facts("ann")
    assert await store.facts("ben") == ()
    assert await asyncio.gather(*waiting) == [()] * MOST_WAITING


class Changes:
    """A watcher that keeps what it receives."""

    def __init__(self) -> None:
        self.seen = list[str | None]()

    def replaced(self, owner: str, fact: Fact) -> None:
        self.seen.append(fact.name)

    def deleted(self, owner: str, user: str | None, name: str | None) -> None:
        self.seen.append(name)


async def test_a_change_whose_request_is_cancelled_reaches_the_other_sessions(store: FactStore, path: Path) -> None:
    changes = Changes()
    store.watchers.add(changes)
    await store.put("ann", "", "pet", "a hedgehog")
    with closing(sqlite3.connect(path, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        cancelled = [asyncio.ensure_future(one) for one in (store.delete("ann"), store.delete("ann", name="pet"))]
        await asyncio.sleep(0)
        for one in cancelled:
            one.cancel()
        await asyncio.wait(cancelled)
        other.rollback()
    assert await names(store, "ann") == []
    assert changes.seen == [None, "pet"]


def damaged(path: Path) -> None:
    path.write_bytes(b"not a database, but a long enough text to be read as the header of one" * 20)


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")


def other_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE music (title TEXT)")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [(damaged, "damaged"), (newer, "newer version of this server"), (other_program, "another program")],
)
def test_an_unusable_file_is_refused_unchanged(path: Path, spoil: Callable[[Path], None], reason: str) -> None:
    path.touch(0o600)
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=reason) as refused:
        FactStore(MemorySettings(path=str(path)))
    assert str(refused.value).startswith("server.memory.path: ")
    assert path.read_bytes() == before


async def test_a_file_that_is_damaged_later_is_an_error(store: FactStore, path: Path) -> None:
    await asyncio.to_thread(damaged, path)
    with pytest.raises(MemoryUnavailable, match="damaged"):
        await store.facts("ann")
    await asyncio.to_thread(path.unlink)
    with pytest.raises(MemoryUnavailable):
        await store.put("ann", "", "pet", "a hedgehog")
    assert not await asyncio.to_thread(path.exists)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or directory"):
        FactStore(MemorySettings(path=str(tmp_path / "none" / "facts.sqlite")))
