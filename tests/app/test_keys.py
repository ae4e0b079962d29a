"""Files of keys: names and keys, one a line; what is no such line is told without the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.keys import Key, Keys, read_keys
from engine import ConfigError


def test_a_file_that_is_missing_or_empty_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.keys_file: cannot read"):
        read_keys(str(tmp_path / "none"))
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(ConfigError, match="holds no key"):
        read_keys(str(tmp_path / "empty"))
    assert read_keys(None) == ()


def test_a_key_has_the_name_before_it_or_one_of_its_digest(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# family\nalice: sk-one\n\n  bob:\tsk:two  \nsk-three\nsk:four\n")
    alice, bob, third, fourth = read_keys(str(file))
    assert (alice, bob) == (Key("alice", "sk-one"), Key("bob", "sk:two"))
    assert (third.value, fourth.value) == ("sk-three", "sk:four")
    assert third.name.startswith("key-")
    assert len(third.name) == len("key-") + 8
    assert "three" not in third.name
    assert "sk-one" not in repr(alice)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alice: sk-a\nalice: sk-b\n", "line 2: this name or this key stands in the file twice"),
        ("alice: sk-a\nbob: sk-a\n", "line 2: this name or this key stands in the file twice"),
        ("al/ice: sk-a\n", "line 1: a name has at most 64"),
        (f"{'a' * 65}: sk-a\n", "line 1: a name has at most 64"),
        ("alice sk-a\n", "line 1: a key has no spaces"),
        ("alice: sk-a sk-b\n", "line 1: a key has no spaces"),
    ],
)
def test_a_line_that_is_none_is_told_by_its_number_and_without_the_key(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ConfigError, match=message) as told:
        read_keys(str(tmp_path / "keys"))
    assert "sk-" not in str(told.value)


def test_only_a_whole_key_has_an_owner() -> None:
    keys = Keys([Key("alice", "sk-one"), Key("bob", "sk-two")])
    assert [keys.owner(one) for one in ("sk-one", "sk-two", "sk-", "", "alice", "sk-\udcff")] == ["alice", "bob"] + [
        None
    ] * 4
    assert keys
    assert not Keys()
