"""Every code block of every page is held by a test, but for a few that say why they are not.

Programs are run by tests/test_readme.py, servers and benches by tests/test_commands.py, pages by
tests/web/test_library.py, answers in JSON by tests/app/http/test_answer_format.py, programs of other clients by
tests/conformance/test_clients.py, a proxy's configuration by tests/app/transports/test_reverse_proxies.py, and what is
said to a proxy by tests/deploy/test_haproxy.py;
configurations and events are read here, and so is every command: that what it names is there (a program, its options, a
target, a file), in blocks and spans alike.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import httpx
import pytest
import typer
import yaml
from fastapi import FastAPI

from app.cli import cli
from app.realtime.protocol import Received
from app.realtime.protocol.from_wire import decode
from app.refusal import Refusal
from app.settings import settings_of
from app.simulation.scenario import parse_scenario
from engine import parse_config
from tests.app.rig import running, script_spec
from tests.test_readme import PAGES, ROOT

HELD = {
    "bash": {"run", "install", "serve", "start", "measure", "join", "drain"},
    "python": {"run", "serve", "key", "extend", "json"},
    "html": {"web"},
    "javascript": {"client"},
    "nginx": {"proxy"},
    "yaml": {"", "scenario"},
    "json": {""},
}
"""The tests of a language's blocks, by what stands above them."""
MOST_NORUN = 0.1
FENCED = re.compile(r"^ *(?:<!-- test: (\w+)(?:: ([^>]+))? -->\n *)?```(\w+)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of a page, and the word above it that says how it is tested."""

    page: str
    kind: str
    reason: str
    language: str
    code: str


def pages() -> list[str]:
    return subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()


def blocks() -> Iterator[Block]:
    for page in pages():
        for kind, reason, language, code in FENCED.findall((ROOT / page).read_text(encoding="utf-8")):
            yield Block(page, kind, reason, language, dedent(code))


ALL = list(blocks())


def of(language: str, *kinds: str) -> list[Any]:
    """The blocks of a language, or only those with one of these words above them."""
    found = [(n, one) for n, one in enumerate(ALL) if one.language == language and one.kind in (kinds or (one.kind,))]
    return [pytest.param(one.code, id=f"{one.page}-{n}") for n, one in found]


def test_every_block_is_held_by_a_test_but_for_a_tenth_that_say_why_not() -> None:
    norun = [one for one in ALL if one.kind == "norun"]
    assert len(ALL) >= 45
    assert all(one.reason for one in norun)
    assert len(norun) <= MOST_NORUN * len(ALL)
    assert not [one for one in ALL if one not in norun and one.kind not in HELD.get(one.language, ())]
    assert {one.page for one in ALL if one.kind in ("run", "install", "serve", "key")} <= set(PAGES)


@pytest.mark.parametrize("code", of("yaml", ""))
def test_a_configuration_is_taken(code: str) -> None:
    """A part of one is put into a whole."""
    tree = yaml.safe_load(code)
    if isinstance(tree, list):
        tree = {"stages": tree} if any("use" in one for one in tree) else {"model": "nano", "workers": tree}
    elif not tree.keys() & {"model", "stages"}:
        tree = {"model": "nano", **tree}
    spec = parse_config(yaml.safe_dump(tree))
    settings_of(spec.server)


@pytest.mark.parametrize("code", of("yaml", "scenario"))
def test_a_scenario_is_taken(code: str) -> None:
    assert parse_scenario(code, ROOT).expect


@pytest.mark.parametrize("code", of("json"))
def test_an_event_is_one_of_the_protocol(code: str) -> None:
    event = json.loads(code)
    if event["type"].startswith("response.output"):
        page = (ROOT / "app" / "EVENTS.md").read_text(encoding="utf-8")
        assert f"| `{event['type']}` | yes |" in page
    else:
        received = decode(code)
        assert isinstance(received, Received)
        assert not isinstance(received.event, Refusal), received.event


async def test_the_backend_that_gives_a_page_its_key_is_taken() -> None:
    (code,) = [one.code for one in ALL if one.kind == "key"]
    async with running(script_spec()) as server, httpx.AsyncClient() as http:
        names: dict[str, Any] = {"app": FastAPI(), "PARLEY": server.http, "KEY": "any-key-will-do", "httpx": httpx}
        exec(code, names)
        transport = httpx.ASGITransport(names["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://backend") as page:
            answer = (await page.post("/voice-key")).json()
        headers = {"Authorization": f"Bearer {answer['value']}"}
        assert (await http.get(f"{server.http}/v1/realtime/ice-servers", headers=headers)).status_code == 200


SPAN = re.compile(r"`([^`\n]+)`")
INDENTED = re.compile(r"(?<=\n\n)((?: {4}\S.*\n)+)")
PREFIX = re.compile(r"^(?:sudo )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(" ".join(re.findall(r"^([a-z ]+):", MAKEFILE, re.MULTILINE)).split())
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
PROSE = ("CHANGELOG.md", "engine/weights/nano/LICENSES.md")
"""Pages that tell of what was, or in the words of others."""


def indented(text: str) -> list[str]:
    """The blocks of commands that are indented, and not fenced: above these nothing can say how they are tested."""
    found = [dedent(block) for block in INDENTED.findall(FENCED.sub("", text))]
    return [block for block in found if re.match(r"[a-z.]", PREFIX.sub("", block))]


def commands(text: str) -> Iterator[list[str]]:
    """The words of every command of a page: in its blocks of code, and in spans."""
    for *_, language, code in FENCED.findall(text):
        yield from (line.split() for line in dedent(code).splitlines() if language == "bash")
    yield from (span.split() for span in SPAN.findall(FENCED.sub("", text)))


def known(words: list[str]) -> bool | None:
    """Whether what a command names is there, as far as its first words tell; None of a program that is not ours."""
    line = PREFIX.sub("", " ".join(words))
    words = re.split(r"\s[|#>]", line)[0].split()
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    match words:
        case ["parley", name, *_] if re.match("[a-z]", name):
            one = cast("Any", typer.main.get_command(cli)).commands.get(name)
            return one is not None and given <= {word for p in one.params for word in (*p.opts, *p.secondary_opts)}
        case ["python", "-m", module, *_] if re.fullmatch(r"[a-z][a-z0-9_.]*[a-z0-9_]", module):
            return module_takes(module, given - {"-m"})
        case ["python", path, *_] if path.endswith(".py"):
            return (ROOT / path).is_file() and options_in(ROOT / path, given)
        case ["sh", path, *_]:
            return (ROOT / path).is_file()
        case ["make", *rest] if rest and re.fullmatch(r"[a-z]+", rest[0]):
            variables = {word.partition("=")[0] for word in rest if re.match(r"[A-Z]+=", word)}
            targets = {word for word in rest if re.fullmatch(r"[a-z]+", word)}
            return targets <= TARGETS and all(f"$({name})" in MAKEFILE or f"({name})" in MAKEFILE for name in variables)
        case ["pip", "install", *rest]:
            extras = re.findall(r"'\.\[([\w,]+)\]'", " ".join(rest))
            return all(extra in EXTRAS for some in extras for extra in some.split(","))
        case _:
            return None


def module_takes(module: str, options: set[str]) -> bool:
    """Whether a module is there, and names these options if it is one of ours."""
    try:
        spec = find_spec(module)
        spec = spec and (find_spec(f"{module}.__main__") if spec.submodule_search_locations else spec)
    except ModuleNotFoundError:
        return False
    if spec is None or spec.origin is None:
        return False
    source = Path(spec.origin)
    return ROOT not in source.parents or ".venv" in source.parts or options_in(source, options)


def options_in(source: Path, options: set[str]) -> bool:
    text = source.read_text(encoding="utf-8")
    return all(re.search(rf"(?<![\w-]){option}(?![\w-])", text) for option in options)


@pytest.mark.parametrize("page", [page for page in pages() if page not in PROSE])
def test_commands_on_the_pages_are_those_of_the_command_line(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [" ".join(words) for words in commands(text) if known(words) is False] == []
    assert indented(text) == []


@pytest.mark.parametrize(
    "line",
    [
        ".venv/bin/parley ask --txt hello", "parley sing", ".venv/bin/python examples/none.py", "make nothing",
        "make serve CONFIGURATION=x", "python -m benchmarks.none", "python -m benchmarks.overhead --none",
        "python examples/raw_websocket.py --none", "sh deploy/none.sh", "sudo .venv/bin/pip install -e '.[none]'",
    ],
)  # fmt: skip
def test_a_command_that_is_none_is_found(line: str) -> None:
    assert known(line.split()) is False
    assert known(["docker", "run", "parley"]) is None


def test_a_block_that_is_indented_is_found() -> None:
    text = "Do:\n\n    make serve  # first\n    docker run x\n\n```bash\n\n    sh x.sh\n```\n\n    T = U\n"
    assert indented(text) == ["make serve  # first\ndocker run x\n"]
