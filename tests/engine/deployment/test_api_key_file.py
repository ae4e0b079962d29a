"""A key file is one line that nobody else can read, or one clear error without the key."""

from pathlib import Path

import pytest

from engine.deployment.api_key_file import read_key
from engine.errors import ConfigError


def written(path: Path, data: bytes, mode: int = 0o600) -> str:
    path.touch(mode)
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_is_its_one_line_and_is_not_shown(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"sk-0123456789\n")
    file.chmod(mode)
    key = read_key(str(file))
    assert key.value == "sk-0123456789"
    assert "0123" not in repr(key)


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o644])
def test_a_key_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=r"Other users of this machine can read .*chmod 600"):
        read_key(written(tmp_path / "key", b"sk-0123456789", mode))


def test_a_key_file_that_is_missing_is_told() -> None:
    with pytest.raises(ConfigError, match="/nowhere/key cannot be read: No such file"):
        read_key("/nowhere/key")


@pytest.mark.parametrize("data", [b"", b"\n", b"sk-01 23", b"sk-one\nsk-two", b"sk-\xc3\xbc", b"k" * 5000, b"a\x00b"])
def test_what_is_no_key_is_told_without_it(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ConfigError, match="must hold one key on one line") as caught:
        read_key(written(tmp_path / "key", data))
    assert "sk-" not in str(caught.value)
