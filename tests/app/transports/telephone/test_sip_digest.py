"""Digest authentication: both algorithms as the RFCs compute them, and what a nonce is good for."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.transports.telephone.sip_digest import NONCE_S, Digest

URI = "sip:parley@127.0.0.1"
HERE = "192.0.2.1"


def authorization(
    challenge: str, user: str, password: str, algorithm: str = "SHA-256", count: int = 1, method: str = "INVITE"
) -> str:
    """What a telephone sends for a challenge (RFC 7616, 3.4), written without the server's code."""
    nonce = re.search(r'nonce="([^"]+)"', challenge)
    realm = re.search(r'realm="([^"]+)"', challenge)
    assert nonce is not None
    assert realm is not None
    hashed = hashlib.sha256 if algorithm == "SHA-256" else hashlib.md5

    def h(text: str) -> str:
        return hashed(text.encode()).hexdigest()

    a1, a2 = h(f"{user}:{realm[1]}:{password}"), h(f"{method}:{URI}")
    response = h(f"{a1}:{nonce[1]}:{count:08x}:0a4f113b:auth:{a2}")
    return (
        f'Digest username="{user}", realm="{realm[1]}", nonce="{nonce[1]}", uri="{URI}", response="{response}", '
        f'algorithm={algorithm}, cnonce="0a4f113b", qop=auth, nc={count:08x}'
    )


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def challenge(digest: Digest, address: str = HERE) -> str:
    return dict(digest.challenges(address))["www-authenticate"]


@pytest.mark.parametrize("algorithm", ["SHA-256", "MD5"])
def test_who_knows_the_password_is_right(algorithm: str) -> None:
    digest = Digest("trunk", "secret")
    assert [value.rpartition("algorithm=")[2] for _, value in digest.challenges(HERE)] == ["SHA-256", "MD5"]
    given = authorization(challenge(digest), "trunk", "secret", algorithm)
    assert digest.verdict("INVITE", [given], HERE) == "right"


@pytest.mark.parametrize(
    ("user", "password", "method", "verdict"),
    [
        ("trunk", "guess", "INVITE", "wrong"),
        ("other", "secret", "INVITE", "wrong"),
        ("trunk", "secret", "BYE", "wrong"),
    ],
)
def test_everybody_else_is_wrong(user: str, password: str, method: str, verdict: str) -> None:
    digest = Digest("trunk", "secret")
    given = authorization(challenge(digest), user, password, method=method)
    assert digest.verdict("INVITE", [given], HERE) == verdict


def test_a_nonce_is_good_for_one_address_for_a_minute_and_each_count_once() -> None:
    clock = Clock()
    digest = Digest("trunk", "secret", clock)
    asked = challenge(digest)
    first = authorization(asked, "trunk", "secret")
    assert digest.verdict("INVITE", [first], "192.0.2.2") == "stale"
    assert digest.verdict("INVITE", [first], HERE) == "right"
    assert digest.verdict("INVITE", [first], HERE) == "stale", "it was replayed"
    assert digest.verdict("INVITE", [authorization(asked, "trunk", "secret", count=2)], HERE) == "right"
    clock.now_s += NONCE_S + 1
    assert digest.verdict("INVITE", [authorization(asked, "trunk", "secret", count=3)], HERE) == "stale"
    assert "stale=true" in dict(digest.challenges(HERE, stale=True))["www-authenticate"]


def test_a_wrong_response_uses_up_no_count() -> None:
    digest = Digest("trunk", "secret")
    asked = challenge(digest)
    assert digest.verdict("INVITE", [authorization(asked, "trunk", "guess")], HERE) == "wrong"
    assert digest.verdict("INVITE", [authorization(asked, "trunk", "secret")], HERE) == "right"


def test_a_nonce_of_another_server_is_none_of_ours() -> None:
    asked = challenge(Digest("trunk", "secret"))
    given = authorization(asked, "trunk", "secret")
    assert Digest("trunk", "secret").verdict("INVITE", [given], HERE) == "stale"


@given(st.text() | st.text(alphabet='Digest realm="parley", nonce=.af09').map(lambda text: f"Digest {text}"))
def test_whatever_is_sent_is_not_right(header: str) -> None:
    assert Digest("trunk", "secret").verdict("INVITE", [header], HERE) in ("none", "stale", "wrong")


def test_other_ways_are_none() -> None:
    digest = Digest("trunk", "secret")
    given = authorization(challenge(digest), "trunk", "secret")
    for other in (
        "Basic dHJ1bms6c2VjcmV0",
        given.replace('realm="parley"', 'realm="x"'),
        given.replace("qop=auth", ""),
        given.replace("algorithm=SHA-256", "algorithm=SHA-512-256"),
    ):
        assert digest.verdict("INVITE", [other], HERE) == "none"
    assert digest.verdict("INVITE", ["Basic x", given], HERE) == "right"
