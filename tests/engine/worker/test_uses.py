"""What ``use:`` may say, and that a mistake in it is told with what was meant."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from engine import ConfigError
from engine.worker import uses
from engine.worker.models.script import ScriptEars
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.stages.llm.openai import OpenAiLlmStage
from engine.worker.uses import line_of, stage_type

OWN = """
from engine.chunk import Text, kinds
from engine.core import StageInfo
from engine.worker.streamed import Streamed

class Thinker(Streamed):
    info = StageInfo(emits=kinds(Text), answers=True)
    async def answer(self, request, inputs):
        yield Text("mine", 0)

STAGE = Thinker
NONE = 7
"""


def test_a_family_s_stages_and_stages_by_themselves_are_found() -> None:
    assert stage_type("script.ears") is ScriptEars
    assert stage_type("llm.openai") is OpenAiLlmStage
    assert line_of("script") == ("ears", "thinker", "talker", "code2wav")


def test_a_file_of_the_user_s_own_is_loaded_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    stage = stage_type(str(file))
    assert stage.describe(StageConfig(slots=3)).slots == 3
    assert stage_type(f"{file}:Thinker") is stage


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            "    def __init__(self, config):\n        import math\n        math.sqrt(-1)",
            "ValueError: math domain error",
        ),
        ("    def __init__(self, config):\n        pass\n    def warm_up(self):\n        {}['key']", "KeyError: 'key'"),
    ],
)
def test_a_bug_in_a_file_s_constructor_or_warm_up_is_one_line_with_its_place(
    tmp_path: Path, fault: str, told: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"{OWN}\nclass Faulty(Thinker):\n{fault}\n")
    line = len(file.read_text().splitlines())
    with pytest.raises(ConfigError) as refused:
        make(f"{file}:Faulty", "faulty", 1, StageConfig())
    assert str(refused.value) == f"stages[1]: {file}:Faulty cannot be created: {told} ({file}, line {line})"


def test_a_bug_at_the_top_of_a_file_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("\n\n1 / 0\n")
    with pytest.raises(
        ConfigError, match=r"cannot be loaded: ZeroDivisionError: division by zero \(.*mine.py, line 3\)"
    ):
        stage_type(str(file))


def test_a_file_without_a_default_stage_asks_for_the_class(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN.replace("STAGE = Thinker", ""))
    with pytest.raises(ConfigError, match=r"mine.py has no STAGE; name the stage's class: use: .*mine.py:Thinker$"):
        stage_type(str(file))


def test_a_folder_whose_name_looks_like_a_file_s_is_none(tmp_path: Path) -> None:
    """The path had been cut at its first ".py"."""
    file = tmp_path / "my.python" / "mine.py"
    file.parent.mkdir()
    file.write_text(OWN)
    assert stage_type(f"{file}:Thinker").describe(StageConfig(slots=2)).slots == 2


def test_what_another_package_offers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "engine.worker.models.script:ScriptEars", uses.GROUP)
    offered = lambda **which: [one for one in [point] if which.get("name", one.name) == one.name]  # noqa: E731
    monkeypatch.setattr(uses, "entry_points", offered)
    assert stage_type("theirs") is ScriptEars
    assert "theirs" in uses.known()


@pytest.mark.parametrize(
    ("use", "told"),
    [
        ("llm.opnai", r"stages\[1\].use: there is no stage 'llm.opnai' \(did you mean 'llm.openai'\?\)"),
        ("nano.talkr", r"there is no stage 'nano.talkr' \(did you mean 'nano.talker'\?\)"),
        ("nano", r"there is no stage 'nano' \(did you mean 'nano"),
        (
            "zzzzzzzz",
            r"there is no stage 'zzzzzzzz' \(known: asr.faster_whisper, asr.moonshine, asr.openai, asr.sherpa, ",
        ),
        ("./none.py", "there is no file ./none.py"),
    ],
)
def test_a_stage_that_there_is_not_is_told_with_the_nearest(use: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        stage_type(use, "stages[1].use")


def test_a_file_that_is_no_stage_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    with pytest.raises(ConfigError, match=r"mine.py has no Ears \(known: Thinker\)"):
        stage_type(f"{file}:Ears")
    with pytest.raises(ConfigError, match=r"mine.py:NONE is not a stage type"):
        stage_type(f"{file}:NONE")
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_that_name")
    with pytest.raises(ConfigError, match=r"broken.py cannot be loaded: ModuleNotFoundError: No module named"):
        stage_type(str(broken))
