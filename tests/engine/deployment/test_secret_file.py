"""Who may read a file of keys: its owner; its group where another user mounted it for the server; never everybody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.deployment.secret_file import check_secret, is_secret, read_key, read_secret
from engine.errors import ConfigError

SERVER, ROOT, OTHER = 1000, 0, 2000


def status(owner: int, mode: int) -> os.stat_result:
    return os.stat_result((0o100000 | mode, 0, 0, 1, owner, 3000, 0, 0, 0, 0))


@pytest.mark.parametrize("owner", [SERVER, ROOT, OTHER])
@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_for_its_owner_alone_is_a_secret(owner: int, mode: int) -> None:
    assert is_secret(status(owner, mode), SERVER)


@pytest.mark.parametrize("owner", [SERVER, ROOT, OTHER])
@pytest.mark.parametrize("mode", [0o666, 0o644, 0o604, 0o602, 0o601, 0o444, 0o620, 0o610, 0o660])
def test_what_everybody_reads_or_a_group_writes_is_none(owner: int, mode: int) -> None:
    assert not is_secret(status(owner, mode), SERVER)
    assert not is_secret(status(owner, mode), ROOT)


@pytest.mark.parametrize("mode", [0o640, 0o440])
def test_a_group_may_read_what_another_user_mounted_for_the_server(mode: int) -> None:
    """Kubernetes mounts a secret as root's, with mode 0440 for the pod's ``fsGroup``; systemd's credentials look so."""
    assert is_secret(status(ROOT, mode), SERVER)
    assert is_secret(status(OTHER, mode), SERVER)
    assert is_secret(status(ROOT, mode), ROOT), "where the server runs as root, its group is root's"
    assert not is_secret(status(SERVER, mode), SERVER), "its own user needs no group to read it"


def test_the_error_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.touch()
    path.chmod(0o644)
    with pytest.raises(
        ConfigError, match=rf"server\.keys_file: .* can read {path}, or write .*chmod 600 {path}\. .*440"
    ):
        check_secret(path, "server.keys_file")
    path.chmod(0o600)
    check_secret(path, "server.keys_file")
    path.unlink()
    with pytest.raises(ConfigError, match=f"server.keys_file: {path} cannot be read: No such file"):
        check_secret(path, "server.keys_file")


def test_a_secret_is_read_without_its_line_end(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.touch(0o600)
    with pytest.raises(ConfigError, match=f"a.password: {path} is empty"):
        read_secret(str(path), "a.password")
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=f"a.password: {path} is not UTF-8"):
        read_secret(str(path), "a.password")
    path.write_text("secret\n")
    assert read_secret(str(path), "a.password") == "secret"


def test_what_the_server_may_not_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(ConfigError, match=f"a.password: {tmp_path} cannot be read: Is a directory"):
        read_secret(str(tmp_path), "a.password")


def written(path: Path, data: bytes, mode: int = 0o600) -> str:
    path.touch(mode)
    path.write_bytes(data)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_is_the_one_line_of_its_file(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"sk-0123456789\n")
    file.chmod(mode)
    assert read_key(str(file)) == "sk-0123456789"


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o644])
def test_a_key_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=r"Other users of this machine can read .*chmod 600"):
        read_key(written(tmp_path / "key", b"sk-0123456789", mode))


def test_a_key_file_that_is_missing_is_told() -> None:
    with pytest.raises(ConfigError, match="key_file: /nowhere/key cannot be read: No such file"):
        read_key("/nowhere/key")


@pytest.mark.parametrize("data", [b"", b"\n"])
def test_an_empty_key_file_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"key_file: .*key is empty"):
        read_key(written(tmp_path / "key", data))


def test_a_key_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"key_file: .*key is longer than 4096 bytes"):
        read_key(written(tmp_path / "key", b"k" * 5000))


@pytest.mark.parametrize("data", [b"sk-01 23", b"sk-one\nsk-two", b"sk-\xc3\xbc", b"a\x00b"])
def test_what_is_no_key_is_told_without_it(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ConfigError, match="must hold one key on one line") as caught:
        read_key(written(tmp_path / "key", data))
    assert "sk-" not in str(caught.value)
