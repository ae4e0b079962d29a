"""Scenario files: what they may contain, and one sentence with the line and the key for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.simulation.scenario import load_scenario, parse_scenario
from engine import ConfigError
from tests.app.rig import ROOT

WHOLE = """\
name: timer
instructions: Be brief.
session: {output_modalities: [audio]}
tools:
  - {name: set_timer, description: Starts a timer., result: {say: started}}
turns:
  - say: Set a timer.
    expect: {contains: started, calls: [{name: set_timer, arguments: {minutes: 10}}]}
  - say: [Mm, hm]
    pause_s: 1
    barge_in_ms: 500
    expect: {continues: true, first_audio_ms: 300}
  - {type: Thanks., limit_s: 2}
  - {audio: bye.wav}
  - silence_s: 3
    expect: {no_answer: true}
expect: {not_contains: [sorry, apologise], ends_s: 60}
"""


def test_a_whole_scenario_is_read(tmp_path: Path) -> None:
    (tmp_path / "bye.wav").touch()
    scenario = parse_scenario(WHOLE, tmp_path)
    assert [str(turn) for turn in scenario.turns] == [
        "Set a timer.",
        "interrupts: Mm … hm",
        "types: Thanks.",
        "(bye.wav)",
        "(3 s of silence)",
    ]
    assert scenario.tools[0].result == {"say": "started"}, "a tool's result stays as it is written"
    assert scenario.turns[0].expect.contains == ("started",)
    assert scenario.turns[0].expect.calls[0].arguments == {"minutes": 10}
    assert scenario.turns[3].audio == str(tmp_path / "bye.wav")
    assert scenario.expect.not_contains == ("sorry", "apologise")


def test_the_example_is_valid() -> None:
    assert load_scenario(ROOT / "examples" / "scenario.yaml").turns


TURN = "name: x\nturns:\n  - say: Hi\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("turns: [\n", "not valid YAML: line 2: "),
        ("name: x\nname: y\n", "line 2: the key 'name' appears twice"),
        ("- say: hi\n", "line 1: the scenario: must be a mapping with the keys name and turns"),
        ("turns:\n  - say: hi\n", "line 1: name: missing"),
        ("name: x\n", "line 1: turns: write either turns, or a caller with a goal"),
        (TURN + "caller: {goal: pizza}\n", "line 2: turns: write either turns, or a caller with a goal"),
        ("name: x\nturn:\n  - say: hi\n", "line 2: turn: unknown key (did you mean 'turns'?)"),
        (
            TURN + "    expect:\n      first_audio: 3\n",
            "line 5: turns[0].expect.first_audio: unknown key (did you mean",
        ),
        (TURN + "    expect: {contains: 3}\n", "line 4: turns[0].expect.contains: must be a list, not 3"),
        (TURN + "    expect:\n      calls: [{nam: t}]\n", "line 5: turns[0].expect.calls[0].nam: unknown key"),
        (TURN + "    expect: {matches: '('}\n", "line 4: turns[0].expect.matches: not a regular expression"),
        (TURN + "    type: Hi\n", "line 3: turns[0]: a turn needs exactly one of say, type, audio and silence_s"),
        (TURN + "    limit_s: 0\n", "line 4: turns[0].limit_s: must be a finite number above 0 (got 0)"),
        (TURN + "    limit_s: .inf\n", "line 4: turns[0].limit_s: must be a finite number above 0 (got inf)"),
        (TURN + "limit_s: -1\n", "line 4: limit_s: must be a finite number above 0 (got -1)"),
        (TURN + "    pause_s: -1\n", "line 4: turns[0].pause_s: must be a finite number of at least 0 (got -1)"),
        (TURN + "    barge_in_ms: 3\n", "line 4: turns[0].barge_in_ms: only a spoken turn after the first one can"),
        (TURN + "    expect: {stop_ms: 9}\n", "line 4: turns[0].expect: stop_ms and continues need barge_in_ms"),
        (TURN + "  - {audio: none.wav}\n", "line 4: turns[1].audio: there is no file"),
        ("name: x\nturns: [{say: ' '}]\n", "line 2: turns[0].say: must not be empty"),
        ("name: x\ncaller:\n  goal: y\n  max_turns: 0\n", "line 4: caller.max_turns: must be at least 1"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_line(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_scenario(file)
    assert str(error.value).startswith(f"{file}: {sentence}")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot read the scenario: No such file"):
        load_scenario(tmp_path / "none.yaml")
