"""Clients that people use already, unmodified and each from its own environment, against a server as it is started."""

from __future__ import annotations

import re

import pytest

from tests.conformance.checks import CHECKS, LIVE, OVER_HTTP, OVER_MCP, OVER_RESPONSES, check
from tests.conformance.conftest import SAID, Place, Play, printed, require
from tests.conformance.environments import RECIPES, Client, Environment, clients
from tests.conformance.part import PHRASE

pytestmark = pytest.mark.conformance

CLIENTS = [pytest.param(client, id=client.name) for client in clients()]
HTTP_CLIENTS = [pytest.param(client, id=client.name) for client in clients("over_http*")]
CASES = [
    pytest.param(client, scenario, id=f"{client.name}-{scenario}")
    for programs, scenarios in (
        ("client*", CHECKS),
        ("live*", LIVE),
        ("over_http*", OVER_HTTP),
        ("over_responses*", OVER_RESPONSES),
    )
    for client in clients(programs)
    for scenario in scenarios
]
DUPLEX = [case for case in CASES if str(case.id).endswith("voice") and str(case.id).startswith("openai_")]
HOSTED = [
    pytest.param(client, scenario, id=f"{client.name}-{scenario}")
    for client in clients("over_mcp*")
    for scenario in OVER_MCP
]
PAGE = RECIPES.parents[1] / "app" / "PROTOCOL.md"
PAGE_PROGRAMS = re.findall(
    r"<!-- test: client: (\w+) -->\n```javascript\n(.*?)^```",
    PAGE.read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
)
"""The environment and the text of each program on the protocol's page."""


@pytest.mark.parametrize(("client", "scenario"), CASES)
def test_a_client(client: Client, scenario: str, script: Place, speech: tuple[str, float], play: Play) -> None:
    recording, speech_s = speech
    check(scenario, play(client, scenario, script, recording), speech_s)


@pytest.mark.parametrize(("client", "scenario"), HOSTED)
def test_tools_of_an_mcp_server(
    client: Client, scenario: str, hosting: Place, speech: tuple[str, float], play: Play
) -> None:
    check(scenario, play(client, scenario, hosting, speech[0]), speech[1])


@pytest.mark.parametrize("client", HTTP_CLIENTS)
def test_a_recording_is_understood_by_the_built_in_model(
    client: Client, nano: Place, speech: tuple[str, float], play: Play
) -> None:
    report = play(client, "transcription", nano, speech[0])
    assert not report.errors
    assert SAID in report.heard.lower()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_voice_turn_with_the_built_in_model(
    client: Client, nano: Place, speech: tuple[str, float], play: Play
) -> None:
    report = play(client, "voice", nano, speech[0])
    assert not report.errors
    assert SAID in report.transcript.lower()
    assert report.audio_s > 0.5


@pytest.mark.parametrize(("client", "scenario"), DUPLEX)
def test_a_duplex_conversation(
    client: Client, scenario: str, duplex: Place, speech: tuple[str, float], play: Play
) -> None:
    """The client speaks as in any session. Nothing tells it of a turn, and the model answers."""
    report = play(client, scenario, duplex, speech[0])
    assert not report.errors
    assert re.fullmatch(r"I heard \d+ words?\.", report.transcript)
    assert report.audio_s > 0.5


@pytest.mark.parametrize(("name", "program"), PAGE_PROGRAMS)
def test_a_program_of_the_page_is_answered(name: str, program: str, nano: Place) -> None:
    environment = Environment(name)
    require(environment)
    for scheme, base in (("https", nano.secure), ("ws", nano.plain)):
        program = program.replace(f"{scheme}://127.0.0.1:8000", f"{scheme}://{base}")
    path = environment.folder / "page.mjs"
    path.write_text(program)
    assert printed(environment, path, nano).strip().lower() == "good morning."


@pytest.mark.parametrize("client", CLIENTS[-1:])
def test_a_server_that_swallows_half_of_the_sound_fails(
    client: Client, short: Place, speech: tuple[str, float], play: Play
) -> None:
    """The gate goes red on a whole chain: client, server and check."""
    report = play(client, "text", short, speech[0])
    assert (report.transcript, report.errors) == (PHRASE.removeprefix("say: "), [])
    with pytest.raises(AssertionError):
        check("text", report, speech[1])
