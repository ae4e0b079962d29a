"""Every code block of every page is held by a test, but for a few that say why they are not.

Programs are run by tests/test_readme.py, pages by tests/web/test_library.py, and a proxy's configuration by
tests/app/transports/test_reverse_proxies.py; configurations, events and commands are read here.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
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
from engine import parse_config
from tests.app.rig import running, script_spec
from tests.test_readme import PAGES, ROOT

HELD = {
    "bash": {"run", "install"},
    "python": {"run", "serve", "key"},
    "html": {"web"},
    "nginx": {"proxy"},
    "yaml": {""},
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


def of(language: str) -> list[Any]:
    return [pytest.param(one.code, id=f"{one.page}-{n}") for n, one in enumerate(ALL) if one.language == language]


def test_every_block_is_held_by_a_test_but_for_a_tenth_that_say_why_not() -> None:
    norun = [one for one in ALL if one.kind == "norun"]
    assert len(ALL) >= 25
    assert all(one.reason for one in norun)
    assert len(norun) <= MOST_NORUN * len(ALL)
    assert not [one for one in ALL if one not in norun and one.kind not in HELD.get(one.language, ())]
    assert {one.page for one in ALL if one.kind in ("run", "install", "serve", "key")} <= set(PAGES)


@pytest.mark.parametrize("code", of("yaml"))
def test_a_configuration_is_taken(code: str) -> None:
    """A part of one is put into a whole."""
    tree = yaml.safe_load(code)
    if isinstance(tree, list):
        tree = {"stages": tree} if any("use" in one for one in tree) else {"model": "nano", "workers": tree}
    elif not tree.keys() & {"model", "stages"}:
        tree = {"model": "nano", **tree}
    spec = parse_config(yaml.safe_dump(tree))
    settings_of(spec.server)


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


COMMANDS = re.compile(r"(?:^ {4,}|^|`)(?:\.venv/bin/)?(parley|python) ([a-z][^\n`#|]+)", re.MULTILINE)
"""Commands as they stand in blocks of code, in indented lines and in spans."""


def mistaken(text: str) -> list[str]:
    """The commands of a page that the command line does not know, or whose program is not there."""
    commands = cast("Any", typer.main.get_command(cli)).commands
    found: list[str] = []
    for program, line in COMMANDS.findall(text):
        name, *words = line.split()
        if program == "python":
            known = not name.startswith("examples/") or (ROOT / name).is_file()
        else:
            options = {option for one in commands[name].params for option in (*one.opts, *one.secondary_opts)}
            given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
            known = given <= options
        found += [] if known else [line]
    return found


@pytest.mark.parametrize("page", [page for page in pages() if page != "CHANGELOG.md"])
def test_commands_on_the_pages_are_those_of_the_command_line(page: str) -> None:
    assert mistaken((ROOT / page).read_text(encoding="utf-8")) == []


def test_a_command_that_is_none_is_found() -> None:
    text = "    .venv/bin/parley ask --txt hello\n`parley serve nano --port 1`\n    .venv/bin/python examples/none.py\n"
    assert [line.split()[0] for line in mistaken(text)] == ["ask", "examples/none.py"]
