"""Request smuggling: no request that is hidden in an ambiguously framed one is answered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.app.transports.malformed import HEAD, answer_to
from tests.attacks.target import attacked

pytestmark = pytest.mark.attacks

HIDDEN = b"GET /livez HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n"
JSON = b"Content-Type: application/json\r\n"
POST = b"POST /v1/responses HTTP/1.1\r\n" + HEAD + JSON
LENGTH = b"Content-Length: %d" % len(HIDDEN)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
FORMS = {
    "a bare LF": POST + b"X: a\n" + LENGTH + b"\r\n\r\n" + HIDDEN,
    "a bare LF as the empty line": POST + LENGTH + b"\r\n\n" + HIDDEN,
    "a folded header": POST + b"X: a\r\n " + LENGTH + b"\r\n\r\n" + HIDDEN,
    "two lengths": POST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + HIDDEN,
    "two lengths in turn": POST + CHUNKED + LENGTH + b"\r\n\r\n0\r\n\r\n" + HIDDEN,
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + HIDDEN,
    "a trailer's bare LF": POST + CHUNKED + b"\r\n0\r\n\n" + HIDDEN,
    "a chunk's bare LF": POST + CHUNKED + b"\r\n2\n{}\r\n0\r\n\r\n" + HIDDEN,
}
AS_H11_READS = r"""
import re
from app.transports import http_protocol
http_protocol.AMBIGUOUS = re.compile(rb"(?!)")
"""


async def answers(folder: Path, forms: Mapping[str, bytes], before: str = "") -> dict[str, list[bytes]]:
    """Return the statuses of all answers to each form."""
    async with attacked(folder, before=before) as (aim, bystander, _):
        found = {name: (await answer_to(aim.port, form)).split(b"HTTP/1.1 ")[1:] for name, form in forms.items()}
    assert bystander.waits.broken is None
    return {name: [one[:3] for one in statuses] for name, statuses in found.items()}


async def test_no_hidden_request_is_answered(tmp_path: Path) -> None:
    found = await answers(tmp_path, FORMS)
    assert {name: statuses for name, statuses in found.items() if statuses not in ([b"400"], [b"501"])} == {}


async def test_without_the_search_for_bare_line_feeds_some_are_answered(tmp_path: Path) -> None:
    form = "a trailer's bare LF"
    found = await answers(tmp_path, {form: FORMS[form]}, AS_H11_READS)
    assert found[form][-1] == b"200"
