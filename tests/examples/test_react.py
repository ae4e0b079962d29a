"""The component for React, bundled with the library's package, in a browser whose microphone says one sentence."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.app.rig import ROOT, Running
from tests.examples.programs import EXAMPLES
from tests.web.browser import MODULES, UNPROCESSED
from tests.web.elsewhere import Elsewhere
from tests.web.other_origin import nano_server, place, saying

__all__ = ["nano_server", "place"]

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.node,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not (MODULES / "react").is_dir(), reason="react is not installed (cd web && npm ci)"),
]


def bundled(folder: Path, server: str) -> Path:
    """The example as its reader builds it, with the packages that the page's own tests have."""

    def run(*command: str | Path) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    project = folder / "react"
    shutil.copytree(EXAMPLES / "react", project, ignore=shutil.ignore_patterns("node_modules", "dist"))
    run("node", ROOT / "web" / "pack.mjs", folder)
    (tarball,) = folder.glob("*.tgz")
    (project / "node_modules" / "parley-voice").mkdir(parents=True)
    run("tar", "-xzf", tarball, "-C", project / "node_modules" / "parley-voice", "--strip-components=1")
    for package in ("react", "react-dom", "scheduler"):
        (project / "node_modules" / package).symlink_to(MODULES / package)
    (project / ".env").write_text(f"VITE_SERVER={server}")
    run(MODULES / ".bin" / "vite", "build", project, "--base", "./", "--logLevel", "error")
    return project / "dist"


async def test_the_component_talks_and_runs_its_tool(server: Running, place: Elsewhere, tmp_path: Path) -> None:
    shutil.copytree(await asyncio.to_thread(bundled, tmp_path, server.http), place.folder / "react")
    async with saying("Please set a timer for ten minutes.", server, tmp_path) as browser, browser.page() as page:
        await page.before(UNPROCESSED)
        await page.do("goto", f"{place.origin}/react/")
        await page.do("click", "button")
        await page.shows("p.timer", "a timer of 10 minutes runs")
        await page.shows("ul", "user: ")
        await page.shows("ul", "answer: ")
        await page.shows("button", "Hang up")
        await page.do("click", "button")
        await page.shows("output", "idle")
        assert await page.errors() == []
    await server.empty()
