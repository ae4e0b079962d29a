"""The committed page: it is what its sources make, small, and speaks of no other server."""

from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"
DIST = WEB / "dist"


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.node
def test_the_committed_page_is_what_its_sources_make(tmp_path: Path) -> None:
    tool = WEB / "node_modules" / ".bin"
    subprocess.run([tool / "tsc"], cwd=WEB, check=True)
    subprocess.run([tool / "vite", "build", "--outDir", tmp_path, "--logLevel", "error"], cwd=WEB, check=True)
    built, committed = files(tmp_path), files(DIST)
    assert sorted(built) == sorted(committed), "run `make web` and commit web/dist"
    assert [name for name in built if built[name] != committed[name]] == []


def test_the_page_is_small() -> None:
    scripts = {name: len(gzip.compress(text)) for name, text in files(DIST).items() if name.endswith(".js")}
    assert "voice.js" in scripts  # the library, by a name that other pages may rely on
    assert sum(1 for name in scripts if "worklet" in name) == 3  # files of their own: an AudioWorklet takes no other
    assert sum(scripts.values()) <= 90_000


def test_the_page_names_no_other_server() -> None:
    for name, text in files(DIST).items():
        if name.endswith(".woff2"):
            continue
        addresses = re.findall(r"(?:https?|wss?)://[\w.-]+", text.decode())
        assert {address.rstrip(".") for address in addresses} <= {"http://www.w3.org", "http://localhost"}, name


def test_the_policy_lets_the_page_reach_its_own_origin_only() -> None:
    assert "content=\"default-src 'self'; base-uri 'none'; form-action 'none'\"" in (DIST / "index.html").read_text()


def test_the_lock_names_no_registry() -> None:
    lock = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert '"integrity"' in lock
