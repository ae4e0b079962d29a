"""A scenario file: what the caller does, and what the assistant must do. Its errors name the line and the key."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import yaml

from engine import ConfigError
from engine.deployment.config import build, parse_yaml

LISTS = ("say", "contains", "not_contains", "not_called")
"""Keys with a list of texts, of which a single one may be written without the list."""
_PATH_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall:
    """A tool call that must happen."""

    name: str
    """The tool's name."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments that the call must have; others are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What the assistant must do, in one turn or in the whole call."""

    contains: tuple[str, ...] = ()
    """Texts that the answer contains, in any case. One text needs no list."""
    not_contains: tuple[str, ...] = ()
    """Texts that the answer does not contain."""
    matches: str | None = None
    """A regular expression that the answer matches somewhere, in any case."""
    judge: str | None = None
    """A requirement in a sentence, which the `llm` judges."""
    first_audio_ms: float | None = None
    """Maximum time from the end of the caller's turn to the first sound of the answer."""
    stop_ms: float | None = None
    """Maximum time from the first sound of a barge-in until the answer falls silent."""
    continues: bool = False
    """Whether the answer must go on although the caller speaks (a backchannel)."""
    no_answer: bool = False
    """Whether the assistant must not answer. The caller listens for 3 s."""
    not_cut: bool = False
    """Whether the assistant must wait for the end of the caller's turn."""
    calls: tuple[ExpectedCall, ...] = ()
    """Tool calls that must happen, in any order."""
    not_called: tuple[str, ...] = ()
    """Tools that must not be called."""
    ends_s: float | None = None
    """Maximum time until the caller has heard the answer to its end, or until the end of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerTurn:
    """One turn of the caller: exactly one of `say`, `type`, `audio` and `silence_s`."""

    say: tuple[str, ...] = ()
    """A text that the caller speaks. Several texts are spoken with a pause in between."""
    type: str | None = None
    """A text that the caller types."""
    audio: str | None = None
    """A recording of speech, relative to the scenario's folder."""
    silence_s: float | None = None
    """Seconds for which the caller stays silent."""
    pause_s: float = 0.8
    """Seconds between the texts of `say`."""
    wait_s: float = 0.5
    """Seconds before the turn, after the caller has heard the answer before it."""
    barge_in_ms: float | None = None
    """Interrupts the answer before it, this long after its first sound."""
    limit_s: float = 30.0
    """Maximum duration of the turn with its answer. A longer turn fails, and ends the call."""
    expect: Expectations = field(default_factory=Expectations)
    """What the assistant must do in this turn."""

    @property
    def needs_answer(self) -> bool:
        """Whether the turn fails if there is no answer."""
        return self.silence_s is None and not self.expect.no_answer and not self.expect.continues

    def __str__(self) -> str:
        over = "interrupts: " if self.barge_in_ms is not None else ""
        if self.say:
            return over + " … ".join(self.say)
        if self.silence_s is not None:
            return f"({self.silence_s:g} s of silence)"
        return f"types: {self.type}" if self.type is not None else f"{over}({Path(self.audio or '').name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """A caller who is played by a language model."""

    goal: str = ""
    """What the caller wants to achieve."""
    persona: str = ""
    """Who the caller is, and how they speak."""
    max_turns: int = 10
    """Maximum number of turns. The model may hang up earlier."""
    types: bool = False
    """Whether the caller types instead of speaking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTool:
    """A function that the caller's program offers to the assistant."""

    name: str
    """The function's name."""
    description: str
    """What it does."""
    parameters: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any](type="object", properties={}))
    """The JSON schema of its arguments."""
    result: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The result of each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A call: either scripted `turns`, or a `caller` who is played by a language model."""

    name: str
    """The name in reports."""
    turns: tuple[CallerTurn, ...] = ()
    """What the caller does, turn by turn."""
    caller: Persona = field(default_factory=Persona)
    """A caller who decides what to say. It needs the `llm`."""
    instructions: str | None = None
    """The session's instructions. Default: the server's."""
    session: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further settings of `session.update`, such as `audio`."""
    tools: tuple[ScenarioTool, ...] = ()
    """Functions with fixed results."""
    voice: str | None = None
    """The caller's voice: one of the server's, or of the `speaker`'s."""
    speaker: str | None = None
    """A configuration whose voice speaks for the caller. Default: the tested server speaks for both."""
    llm: str | None = None
    """The language model of the caller and the judge, as `--thinker` names it: `ollama:MODEL`, `openai:MODEL@URL`."""
    expect: Expectations = field(default_factory=Expectations)
    """What must hold for the whole call."""
    limit_s: float = 300.0
    """Maximum duration of the call. A longer call fails."""

    @property
    def needs_llm(self) -> bool:
        """Whether a language model plays the caller or judges an expectation."""
        judged = any(one.judge for one in (self.expect, *(turn.expect for turn in self.turns)))
        return judged or bool(self.caller.goal)

    @property
    def speaks(self) -> bool:
        """Whether some text must be spoken."""
        return any(turn.say for turn in self.turns) or bool(self.caller.goal and not self.caller.types)


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file. Raises ConfigError, whose message begins with the file and the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{path}: cannot read the scenario: {reason}") from None
    try:
        return parse_scenario(text, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_scenario(text: str, folder: Path) -> Scenario:
    """Parse the text of a scenario. Raises ConfigError, whose message begins with the line."""
    tree = parse_yaml(text)
    try:
        scenario: Scenario = build(Scenario, _with_lists(tree), "")
        for problem in _problems(scenario, folder):
            raise ConfigError(problem)
    except ConfigError as error:
        raise ConfigError(f"line {_line(text, str(error).partition(': ')[0])}: {error}") from None
    return replace(scenario, turns=tuple(_located(turn, folder) for turn in scenario.turns))


def _with_lists(tree: Any) -> Any:
    """Return the tree with single texts as lists where a list is expected."""
    if not isinstance(tree, dict):
        raise ConfigError("the scenario: must be a mapping with the keys name and turns")
    fields = cast("dict[str, Any]", tree)
    turns = fields.get("turns")
    listed = {name: _listed(value) for name, value in fields.items() if name == "expect"}
    if isinstance(turns, list):
        listed["turns"] = [_listed(turn) for turn in cast("list[Any]", turns)]
    return fields | listed


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return {
        name: [one] if name in LISTS and isinstance(one, str) else _listed(one) if name == "expect" else one
        for name, one in fields.items()
    }


def _problems(scenario: Scenario, folder: Path) -> Iterator[str]:
    """Yield the mistakes that types alone cannot express, each as ``key: sentence``."""
    if not scenario.name.strip():
        yield "name: must not be empty"
    if bool(scenario.turns) == bool(scenario.caller.goal):
        yield "turns: write either turns, or a caller with a goal"
    if scenario.caller.max_turns < 1:
        yield "caller.max_turns: must be at least 1"
    yield from _out_of_range(scenario, "limit_s", "")
    yield from _of_expectations(scenario.expect, "expect.")
    for place, turn in enumerate(scenario.turns):
        yield from _of_turn(turn, f"turns[{place}].", place, folder)


def _of_turn(turn: CallerTurn, path: str, place: int, folder: Path) -> Iterator[str]:
    ways = [turn.say, turn.type, turn.audio, turn.silence_s]
    if sum(way not in (None, ()) for way in ways) != 1:
        yield f"{path[:-1]}: a turn needs exactly one of say, type, audio and silence_s"
    if not all(part.strip() for part in turn.say):
        yield f"{path}say: must not be empty"
    if turn.audio is not None and not (folder / turn.audio).is_file():
        yield f"{path}audio: there is no file {folder / turn.audio}"
    for name in ("limit_s", "silence_s"):
        yield from _out_of_range(turn, name, path)
    for name in ("pause_s", "wait_s", "barge_in_ms"):
        yield from _out_of_range(turn, name, path, zero=True)
    if turn.barge_in_ms is not None and (place == 0 or not (turn.say or turn.audio)):
        yield f"{path}barge_in_ms: only a spoken turn after the first one can interrupt an answer"
    if turn.barge_in_ms is None and (turn.expect.stop_ms is not None or turn.expect.continues):
        yield f"{path}expect: stop_ms and continues need barge_in_ms, which interrupts an answer"
    yield from _of_expectations(turn.expect, f"{path}expect.")


def _of_expectations(expect: Expectations, path: str) -> Iterator[str]:
    for name in ("first_audio_ms", "stop_ms", "ends_s"):
        yield from _out_of_range(expect, name, path)
    try:
        re.compile(expect.matches or "")
    except re.error as error:
        yield f"{path}matches: not a regular expression: {error}"


def _out_of_range(spec: object, name: str, path: str, zero: bool = False) -> Iterator[str]:
    value = getattr(spec, name)
    if value is not None and not (0 < value < math.inf or (zero and value == 0)):
        yield f"{path}{name}: must be a finite number {'of at least' if zero else 'above'} 0 (got {value:g})"


def _located(turn: CallerTurn, folder: Path) -> CallerTurn:
    return turn if turn.audio is None else replace(turn, audio=str((folder / turn.audio).absolute()))


def _line(text: str, path: str) -> int:
    """Return the line of a key such as ``turns[1].expect.stop_ms``, or of the part of it that exists."""
    node = yaml.compose(text)
    line = 1
    for index, key in _PATH_PART.findall(path):
        if index and isinstance(node, yaml.SequenceNode):
            node = node.value[int(index)]
            line = node.start_mark.line + 1
        elif isinstance(node, yaml.MappingNode):
            found = [pair for pair in node.value if pair[0].value == key]
            if not found:
                break
            line = found[0][0].start_mark.line + 1
            node = found[0][1]
    return line
