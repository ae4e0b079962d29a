"""The READMEs' code runs as it stands, with the packages that a reader has by then: those of `make serve`, and what an
earlier block of the same page installs.

A block is run when `<!-- test: run -->` stands above it; with `serve`, a server runs meanwhile at the address that the
block names; with `install`, nothing is to be left to install in an environment for developing; `norun: REASON` says why
a block can't be run. Blocks of data and of pages have their tests in tests/test_blocks.py."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from textwrap import dedent

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.bench import subject
from scripts.pin import closure

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r"^ *(?:<!-- test: (\w+)(?:: [^>]+)? -->\n *)?```(bash|python)\n(.*?)^ *```", re.DOTALL | re.MULTILINE
)
PAGES = (
    "CONTRIBUTING.md", "README.md", "SECURITY.md", "app/PROTOCOL.md", "configs/README.md", "docs/quickstart.md",
    "docs/testing.md", "docs/tools.md", "engine/EXTENDING.md", "engine/README.md", "web/LIBRARY.md",
)  # fmt: skip
TEXTS = [(ROOT / name).read_text(encoding="utf-8") for name in PAGES]
BLOCKS = [(kind, language, dedent(code)) for text in TEXTS for kind, language, code in BLOCK.findall(text)]
WRITTEN_ADDRESS = "127.0.0.1:8000"
OURS = "parley-voice"

WITHOUT = """\
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""
"""What makes an environment for developing look like a reader's."""


def installed(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """The Python blocks of a page that are run, each with the packages that its reader has by then."""
    has = frozenset({OURS, *closure(())})
    for kind, language, code in BLOCK.findall(text):
        if kind == "install":
            has |= {name for quoted in re.findall(r'"(.+?)"', code) for name in needed(Requirement(quoted))}
        elif language == "python":
            yield code, has


def needed(requirement: Requirement) -> frozenset[str]:
    """A package that a reader installs, and what it brings along."""
    return frozenset({canonicalize_name(requirement.name), *closure(tuple(requirement.extras), requirement.name)})


@functools.cache
def packages() -> dict[str, frozenset[str]]:
    """Every Python block that is run, and the packages that its reader has by then."""
    return {code: has for text in TEXTS for code, has in installed(text)}


@pytest.fixture(scope="module")
def server() -> Generator[subject.Subject]:
    """A server that has not stopped since the last block, as a reader's has not."""
    with subject.running(None) as running:
        yield running


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder that looks like a clone after `make serve`, into which a block may write."""
    for name in ("configs", "examples", "tests", "constraints.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def run(language: str, code: str, folder: Path, has: frozenset[str] | None = None) -> subprocess.CompletedProcess[str]:
    """``has`` are the packages that the code may import; None: all that are here. pip finds no package elsewhere."""
    code = code if has is None else WITHOUT.format(absent=absent(has)) + code
    command = ["bash", "-euc", code] if language == "bash" else [sys.executable, "-W", "error", "-c", code]
    env = {**os.environ, "PIP_NO_INDEX": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, env=env)


def absent(has: frozenset[str]) -> set[str]:
    """The modules of every other package."""
    found = packages_distributions().items()
    return {module for module, packages in found if not has & {canonicalize_name(package) for package in packages}}


@pytest.mark.slow
@pytest.mark.parametrize(("language", "code"), [block[1:] for block in BLOCKS if block[0] == "run"])
def test_a_block_runs(language: str, code: str, clone: Path) -> None:
    result = run(language, code, clone, packages().get(code))
    assert result.returncode == 0, result.stderr
    if "parley" in code or language == "python":
        assert "first audio after" in result.stdout + result.stderr
    sounds(code, clone)


def sounds(code: str, folder: Path) -> None:
    """The recordings that a block names are there, half a second long at least."""
    for name in re.findall(r"\b\w+\.wav\b", code):
        assert (folder / name).stat().st_size > 24_000


@pytest.mark.parametrize(("language", "code"), [block[1:] for block in BLOCKS if block[0] == "serve"])
@pytest.mark.slow
def test_a_client_runs_against_a_server(language: str, code: str, clone: Path, server: subject.Subject) -> None:
    assert WRITTEN_ADDRESS in code
    address = server.url.removeprefix("ws://")
    result = run(language, code.replace(WRITTEN_ADDRESS, address), clone, packages().get(code))
    assert result.returncode == 0, result.stderr
    if language == "python":
        assert float(result.stdout.split()[0]) > 0.3, "seconds of sound"
    else:
        assert result.stdout.strip(), "the answer's words"
    sounds(code, clone)


@pytest.mark.parametrize("code", [code for kind, _, code in BLOCKS if kind == "install"])
def test_what_a_reader_installs_is_what_is_tested_here(code: str, clone: Path) -> None:
    result = run("bash", code, clone)
    assert result.returncode == 0, result.stderr


def test_a_package_that_no_block_has_installed_is_missed(clone: Path) -> None:
    """`openai` comes with the environment for developing; who has only served does not have it."""
    result = run("python", "import openai", clone, frozenset({OURS, *closure(())}))
    assert "No module named 'openai'" in result.stderr


LINK = re.compile(r"\]\(([^()\s#]*)(?:#([\w-]+))?\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """The links of a page that lead to no file, or to no heading of it. Links to other hosts are not looked at."""
    found: list[str] = []
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        if "://" not in path and (not target.exists() or (anchor and anchor not in anchors(target))):
            found.append(f"{path}#{anchor}")
    return found


def test_every_link_between_the_pages_leads_somewhere() -> None:
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert "README.md" in pages
    assert not {page: links for page in pages if (links := broken(ROOT / page))}


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One heading: here\n[a](page.md#one-heading-here) [b](#two) [c](none.md) [d](https://none/x)\n")
    assert broken(page) == ["#two", "none.md#"]


def test_a_family_of_which_there_is_no_network_is_called_transition_only() -> None:
    """Each module of transitions that is no family's own and no part of all of them."""
    worker = ROOT / "engine" / "worker"
    shared = {"__init__", "accumulator", "transition", "windows"}
    families = {path.stem for path in (worker / "transitions").glob("*.py")} - shared
    alone = {name.replace("_", "") for name in families if not (worker / "models" / name).is_dir()}
    assert len(alone) == 5
    passages = re.split(r"\n\n|\n(?=\|)", (ROOT / "docs" / "models.md").read_text(encoding="utf-8"))
    (passage,) = (one for one in passages if "transition only" in one)
    squeezed = re.sub(r"[^a-z0-9]", "", passage.lower())
    assert {name for name in alone if name not in squeezed} == set()


def test_the_glossary_is_in_order_and_its_words_are_the_code_s() -> None:
    page = (ROOT / "engine" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([\w, -]+) \| .+ \|$", page.partition("| Word | Meaning |")[2].partition("##")[0], re.MULTILINE
    )
    assert len(rows) >= 35
    assert rows == sorted(rows)
    files = (ROOT / "engine").rglob("*.py")
    source = "\n".join(path.read_text(encoding="utf-8") for path in files if "training" not in path.parts).lower()
    assert not [
        word for row in rows for word in row.split(", ") if word.replace("-", "") not in source.replace("-", "")
    ]


OTHERS = {"MCPClient"}
"""Classes of other projects that the pages name."""


def named(text: str) -> set[str]:
    """The classes, and their methods, that a page's sentences name: tables and blocks show other projects', too."""
    prose = re.sub(r"```.*?```|^\|.*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"`([A-Z][a-z]\w+)(?:\.(\w+))?(?:\(.*?\))?`", prose)
    return {name for pair in found for name in pair if name} - OTHERS


@pytest.mark.parametrize(
    "page", ["README.md", "ARCHITECTURE.md", "app/README.md", "app/PROTOCOL.md", "engine/README.md"]
)
def test_names_on_the_pages_are_those_of_the_code(page: str) -> None:
    files = [path for folder in ("app", "engine") for path in (ROOT / folder).rglob("*.py")]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    assert not named((ROOT / page).read_text(encoding="utf-8")) - words
    assert named("`Orchestrator.opened(x)`, not\n| `Nobody` |\n") == {"Orchestrator", "opened"}
