"""Runs a scenario: each run is one call in a session of its own, whose record is checked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import zip_longest

from app.access.api_keys import read_keys
from app.client import ClientError
from app.commands.deployment import deployment
from app.commands.server import Address
from app.commands.source import Answerer, opened
from app.simulation.caller import Caller, calling
from app.simulation.expectations import Check, checks, checks_of_turn
from app.simulation.language_model import judged, language_model, next_words
from app.simulation.listener import CallListener, TurnRecord
from app.simulation.scenario import CallerTurn, Scenario
from app.simulation.speech import CallerSpeech


@dataclass(frozen=True, slots=True)
class CheckedTurn:
    """A turn of a run, and its checks."""

    record: TurnRecord
    checks: list[Check]


@dataclass(slots=True)
class SimulatedCall:
    """One call. It passed if no check failed."""

    number: int
    turns: list[CheckedTurn] = field(default_factory=list[CheckedTurn])
    whole: list[Check] = field(default_factory=list[Check])
    """The checks of the whole call."""
    took_s: float = 0.0

    @property
    def failed(self) -> list[Check]:
        every = [*(check for turn in self.turns for check in turn.checks), *self.whole]
        return [check for check in every if not check.passed]


@dataclass(frozen=True, slots=True)
class CallerParts:
    """The caller's speech, and the language model that plays the caller and judges; None without one."""

    speech: CallerSpeech
    llm: Answerer | None


async def simulate(
    scenario: Scenario,
    address: Address,
    llm_key_file: str | None = None,
    runs: int = 1,
    on_run: Callable[[SimulatedCall], None] = lambda run: None,
) -> list[SimulatedCall]:
    """Run a scenario several times, one run after the other.

    Args:
        scenario: The scenario.
        address: The tested server.
        llm_key_file: The file with the API key of the scenario's ``llm``.
        runs: The number of calls.
        on_run: Receives each finished run.

    Returns:
        All runs.

    Raises:
        EngineError: The server, the caller's voice or the language model is not available.
    """
    keys = read_keys(address.key_file, "--key-file")
    key = keys[0].value if keys else None
    done: list[SimulatedCall] = []
    async with _parts(scenario, address, llm_key_file) as parts:
        await parts.speech.prepare(scenario.turns)
        for number in range(1, runs + 1):
            done.append(await _run(scenario, number, address.url, key, parts))
            on_run(done[-1])
    return done


@asynccontextmanager
async def _parts(scenario: Scenario, address: Address, llm_key_file: str | None) -> AsyncGenerator[CallerParts]:
    async with AsyncExitStack() as stack:
        speaker = None
        if scenario.speaks:
            voice = address if scenario.speaker is None else deployment(scenario.speaker)
            speaker = await stack.enter_async_context(opened(voice, scenario.voice))
        assert scenario.llm is not None or not scenario.needs_llm
        llm = None
        if scenario.llm is not None:
            llm = await stack.enter_async_context(opened(language_model(scenario.llm, llm_key_file)))
        yield CallerParts(CallerSpeech(speaker, scenario.voice), llm)


async def _run(scenario: Scenario, number: int, url: str, key: str | None, parts: CallerParts) -> SimulatedCall:
    """Make one call. Raises ClientError if the first session cannot be opened."""
    run = SimulatedCall(number)
    listener = CallListener({tool.name: tool.result for tool in scenario.tools})
    taken: list[CallerTurn] = []
    is_open = number > 1
    begun_s = time.monotonic()
    try:
        async with asyncio.timeout(scenario.limit_s), calling(url, key, scenario, listener, parts.speech) as caller:
            is_open = True
            await _converse(scenario, caller, parts.llm, taken)
    except TimeoutError:
        run.whole.append(Check("limit_s", False, f"the call was not over after {scenario.limit_s:g} s"))
    except ClientError as error:
        if not is_open:
            raise
        run.whole.append(Check("connection", False, str(error)))
    run.took_s = time.monotonic() - begun_s
    await _check(scenario, run, taken, listener.turns, parts.llm)
    return run


async def _converse(scenario: Scenario, caller: Caller, llm: Answerer | None, taken: list[CallerTurn]) -> None:
    """Take all turns, and add each to ``taken`` when it begins. A turn that exceeds its limit is the last one."""
    for turn, following in zip_longest(scenario.turns, scenario.turns[1:]):
        taken.append(turn)
        if (await caller.take(turn, following)).failure:
            return
    if llm is None or not scenario.caller.goal:
        return
    said: list[str] = []
    heard: list[str] = []
    while len(said) < scenario.caller.max_turns:
        words = await next_words(llm, scenario.caller, said, heard)
        if words is None:
            return
        taken.append(CallerTurn(type=words) if scenario.caller.types else CallerTurn(say=(words,)))
        record = await caller.take(taken[-1])
        if record.failure:
            return
        said.append(words)
        heard.append(record.text)


async def _check(
    scenario: Scenario,
    run: SimulatedCall,
    taken: Sequence[CallerTurn],
    records: Sequence[TurnRecord],
    llm: Answerer | None,
) -> None:
    for turn, record in zip(taken, records, strict=False):  # a turn may have ended before it began
        checked = CheckedTurn(record, checks_of_turn(turn, record))
        if llm is not None and turn.expect.judge is not None:
            checked.checks.append(await judged(llm, turn.expect.judge, [record]))
        run.turns.append(checked)
    if not records and not run.whole:
        run.whole.append(Check("turns", False, "the caller hung up at once"))
    run.whole += checks(scenario.expect, records, records[-1].ended_s if records else None)
    if llm is not None and scenario.expect.judge is not None:
        run.whole.append(await judged(llm, scenario.expect.judge, records))
