"""The page's parts that need no browser, tested in Node (``units.test.js``)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WEB = HERE.parents[1] / "web"


@pytest.mark.node
def test_the_parts_that_need_no_browser(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "vite.config.js").write_text("export default {}")  # not the page's, which names entries of its own
    target = ["--config", tmp_path / "vite.config.js", "--outDir", tmp_path / "out", "--logLevel", "error"]
    bundle = ["vite", "build", "--ssr", HERE / "units.test.js", *target]
    subprocess.run([WEB / "node_modules" / ".bin" / bundle[0], *bundle[1:]], cwd=WEB, check=True)
    command = ["node", "--test", "--test-reporter=tap", tmp_path / "out" / "units.test.js"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "# fail 0" in run.stdout
    assert "# pass 0" not in run.stdout
