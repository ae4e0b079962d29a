"""The documentation's site: built strictly and without a network, every page in it, nothing in it from elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="mkdocs-material is not installed (`make docs` brings it)")

from scripts import documentation

ROOT = documentation.ROOT
SEARCH = Path(__file__).with_name("site_search.mjs")
FIRST_RESULTS = {
    "ollama": "configs/index.html",
    "change voice": "docs/voices.html",
    "phone": "app/TELEPHONES.html",
    "barge-in": "docs/conversation.html",
    "embed": "web/LIBRARY.html",
    "microphone blocked": "docs/troubleshooting.html",
    "memory": "docs/memory.html",
    "language": "docs/languages.html",
}
"""The page that a user looks for with each query."""
ELSEWHERE = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^>]*>""")


OFFLINE = """
import socket

def refuse(*arguments, **more):
    raise OSError("the site is built without a network")

socket.getaddrinfo = socket.socket.connect = socket.socket.connect_ex = refuse
"""
"""What Python does first in a program that is to have no network."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    result = build(ROOT / "mkdocs.yml", folder)
    assert result.returncode == 0, result.stderr
    return folder


def build(configuration: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run mkdocs without a network; a page outside the menu, a broken link or anchor is a warning, and a warning is an
    error."""
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(configuration),
        "-d",
        str(folder),
    ]
    with tempfile.TemporaryDirectory() as first:
        (Path(first) / "sitecustomize.py").write_text(OFFLINE)
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": first}
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=100)


def test_every_page_of_the_repository_is_there(site: Path) -> None:
    expected = {"index.html", *pages()}
    assert len(expected) > 25
    assert not [name for name in expected if not (site / name).is_file()]


def pages() -> set[str]:
    """Return the site's files of all pages but the home page."""
    names = set(documentation.pages()) - {documentation.README, documentation.HOME}
    return {re.sub(r"README\.md$", "index.md", name).removesuffix("md") + "html" for name in names}


def test_the_quickstart_is_the_home_page(site: Path) -> None:
    assert '<h1 id="quickstart">' in (site / "index.html").read_text(encoding="utf-8")


def test_the_navigation_names_each_page_by_its_heading(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    links = dict(
        re.findall(r'<a href="([\w/.]+\.html)" class="md-nav__link">\s*<span class="md-ellipsis">\s*(.+?)\s*<', home)
    )
    assert links.keys() == pages()
    for link, title in links.items():
        heading = re.search(r"<h1[^>]*>(.+?)<a class", (site / link).read_text(encoding="utf-8"))
        assert heading is not None
        assert heading[1] == title


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_search_finds_the_page_that_a_user_looks_for(site: Path) -> None:
    found = searched(site, *FIRST_RESULTS)
    assert {query: pages[0] for query, pages in found.items()} == FIRST_RESULTS


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_search_leaves_out_history_and_training(site: Path) -> None:
    found = searched(site, "training", "release", "weights", "licence").values()
    results = {page for pages in found for page in pages}
    assert "docs/models.html" in results
    assert not [page for page in results if page.startswith(("CHANGELOG", "MAINTAINING", "engine/training"))]


def searched(site: Path, *queries: str) -> dict[str, list[str]]:
    """Return the pages that the site's own search finds for each query, best first."""
    command = ["node", str(SEARCH), str(site), *queries]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    found = {match for page in site.rglob("*.html") for match in ELSEWHERE.findall(page.read_text(encoding="utf-8"))}
    assert not {one for one in found if 'rel="canonical"' not in one}
    styles = "".join(page.read_text(encoding="utf-8") for page in site.rglob("*.css"))
    assert not re.findall(r"@import|url\(['\"]?https?://", styles)
    assert ELSEWHERE.findall('<link rel="preconnect" href="https://fonts.example.org"><script src=//x/y.js>')


def test_tables_lists_and_blocks_are_what_they_look_like(site: Path) -> None:
    page = (
        (site / "app" / "PROTOCOL.html").read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
    )
    assert page.count("<table>") >= 5
    assert re.search(r"<li>(?:(?!</li>).)*<ul>", page, re.DOTALL), "a list within a list"
    text = re.sub(r"<[^>]+>", "", re.sub(r"<(pre|code)\b.*?</\1>", "", page, flags=re.DOTALL))
    assert not re.findall(r"^ *(?:\| |- |```)", text, re.MULTILINE)


def test_no_list_becomes_a_block_of_code(site: Path) -> None:
    """A list that is indented too little for its place is one."""
    broken = re.compile(r"<code>\s*(?:- |\d+\. |\| )")
    assert not [page.name for page in site.rglob("*.html") if broken.search(page.read_text(encoding="utf-8"))]


def test_a_link_to_nothing_and_a_page_outside_the_menu_stop_it(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n[two](two.md) [here](#nothing)\n")
    (tmp_path / "docs" / "three.md").write_text("# Three\n")
    validation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("validation:")[2].partition("nav:")[0]
    configuration = f"site_name: x\nnav: [index.md]\nvalidation:{validation}"
    (tmp_path / "mkdocs.yml").write_text(configuration, encoding="utf-8")
    result = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert result.returncode != 0
    for word in ("two.md", "#nothing", "three.md"):
        assert word in result.stderr


def test_a_site_that_fetches_something_is_not_built(tmp_path: Path) -> None:
    """The negative control of every build here: none has a network."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n")
    fetch = "import urllib.request\ndef on_files(files, config):\n    urllib.request.urlopen('http://192.0.2.1/x.js')\n"
    (tmp_path / "fetch.py").write_text(fetch)
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nhooks: [fetch.py]\n")
    result = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert result.returncode != 0
    assert "without a network" in result.stderr
