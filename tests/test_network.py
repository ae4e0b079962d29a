"""Nothing that Parley serves or runs reaches for another machine: neither its processes nor the pages it hands out.

Every test runs behind tests/guard, which refuses such a connection in this process and in every Python process that
is started from it; tests/test_gates.py shows that the guard goes red. Here a whole server is put behind it.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

import web
from app.bench import sessions, subject
from app.bench.target import Target

PAGES = ("/", "/docs", "/openapi.json", "/health", "/livez", "/metrics")
REFERENCE = re.compile(r"""(?:src|href|url)\s*[=:]\s*["']([^"'#][^"']*)["']|url\(["']?([^"')]+)""")


def references(text: str) -> set[str]:
    """What a page makes its browser load: addresses in src, href and url(…)."""
    return {first or second for first, second in REFERENCE.findall(text)}


@pytest.mark.slow
def test_a_server_with_its_pages_and_an_answer_stays_at_home() -> None:
    with subject.running("script") as server, httpx.Client(trust_env=False) as client:
        base = server.url.replace("ws:", "http:")
        host = urlsplit(base).netloc
        seen: set[str] = set()
        todo = {urljoin(base, page) for page in PAGES}
        while todo:
            address = todo.pop()
            seen.add(address)
            page = client.get(address)
            assert page.status_code in (200, 404), address
            if page.status_code == 200 and "html" in page.headers["content-type"]:
                found = {urljoin(address, reference) for reference in references(page.text)}
                foreign = {one for one in found if urlsplit(one).scheme in ("http", "https", "ws", "wss")
                           and urlsplit(one).netloc != host}  # fmt: skip
                assert not foreign, f"{address} loads {foreign}"
                todo |= {one for one in found if one.startswith(base)} - seen
        figures = asyncio.run(sessions.typed(Target(server.url), 1))
        assert figures[0].value is not None, "there was no answer"
    assert len(seen) > len(PAGES)


def test_the_built_page_names_no_other_host() -> None:
    dist = Path(web.__file__).parent / "dist"
    if not dist.is_dir():
        pytest.skip("web/dist is not built")
    for path in dist.rglob("*"):
        if path.suffix in (".html", ".js", ".css"):
            for reference in references(path.read_text(encoding="utf-8")):
                assert not urlsplit(reference).netloc, f"{path.name} loads {reference}"


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<script src="https://cdn.example/x.js">', {"https://cdn.example/x.js"}),
        ("<style>@import url(https://fonts.example/a.css)</style>", {"https://fonts.example/a.css"}),
        ("SwaggerUIBundle({url: '/openapi.json'})", {"/openapi.json"}),
        ('<a href="#top">', set[str]()),
    ],
)
def test_references_are_found(page: str, found: set[str]) -> None:
    """The negative control: what a foreign page would load is seen."""
    assert references(page) == found
