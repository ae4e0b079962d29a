"""Who has the token gets in, both know it, and nothing that crossed can be used again."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError, WireError
from engine.ipc.handshake import GREETING, Doorkeeper, Visitor, make_token, read_token

TOKEN = b"open sesame, and be quick"


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_who_has_the_token_gets_in_however_the_bytes_are_cut(size: int) -> None:
    keeper, visitor = Doorkeeper(TOKEN), Visitor(TOKEN)
    answer = GREETING + b"".join(visitor.feed(piece)[0] for piece in pieces(keeper.greeting, size))
    proof, rest = b"", b""
    for piece in pieces(answer + b"and more", size):
        if keeper.done:
            rest += piece
        else:
            proof, rest = keeper.feed(piece)
    assert keeper.done
    assert rest == b"and more"
    beyond = b""
    for piece in pieces(proof + b"hello", size):
        beyond += piece if visitor.done else visitor.feed(piece)[1]
    assert visitor.done
    assert beyond == b"hello"
    assert TOKEN not in keeper.greeting + answer + proof


@pytest.mark.fault("S3.2")
def test_another_token_does_not() -> None:
    keeper, visitor = Doorkeeper(TOKEN), Visitor(b"another token altogether")
    answer, _ = visitor.feed(keeper.greeting)
    with pytest.raises(WireError, match="token"):
        keeper.feed(GREETING + answer)
    assert not keeper.done


@pytest.mark.fault("S3.2")
def test_an_answer_is_good_once() -> None:
    keeper, visitor = Doorkeeper(TOKEN), Visitor(TOKEN)
    answer, _ = visitor.feed(keeper.greeting)
    keeper.feed(GREETING + answer)
    with pytest.raises(WireError, match="token"):
        Doorkeeper(TOKEN).feed(GREETING + answer)


def test_a_server_without_the_token_is_found_out() -> None:
    visitor = Visitor(TOKEN)
    visitor.feed(Doorkeeper(b"somebody else's token").greeting)
    with pytest.raises(WireError):
        visitor.feed(b"\0" * 32)


def test_an_answer_reflected_is_no_answer() -> None:
    visitor = Visitor(TOKEN)
    answer, _ = visitor.feed(Doorkeeper(TOKEN).greeting)
    with pytest.raises(WireError):
        visitor.feed(answer[32:])


@pytest.mark.parametrize("greeting", [b"parley/1", b"parley/00000000"])
def test_two_of_different_versions_tell_each_other_so_in_one_sentence(greeting: bytes) -> None:
    """Before either says anything that the other would have to understand."""
    with pytest.raises(WireError, match="the server has another version of Parley: install the same one on both"):
        Visitor(TOKEN).feed(greeting + b"\1" * 32)
    with pytest.raises(WireError, match="it has another version of Parley"):
        Doorkeeper(TOKEN).feed(greeting + b"\1" * 64)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_waited_on(data: bytes) -> None:
    keeper = Doorkeeper(TOKEN)
    with contextlib.suppress(WireError):
        keeper.feed(data)
    assert not keeper.done
    visitor = Visitor(TOKEN)
    if not GREETING.startswith(data[: len(GREETING)]):
        with pytest.raises(WireError):
            visitor.feed(data)


def test_a_token_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = make_token(path)
    assert len(token) == 64
    assert read_token(path) == token
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError):
        make_token(path)


@pytest.mark.parametrize(("text", "mode", "words"), [("x" * 40, 0o644, "chmod"), ("short", 0o600, "too short")])
def test_a_token_that_others_can_read_or_guess_is_refused(tmp_path: Path, text: str, mode: int, words: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=words):
        read_token(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(tmp_path / "none")
