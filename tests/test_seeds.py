"""The table of statements and their tests is true: no test names what is no statement, and a missing one is seen."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from scripts import faults, mutants, seeds


def test_every_statement_has_a_test_and_no_test_names_another() -> None:
    assert seeds.main(["--check"]) == 0


def test_a_statement_without_a_test_fails_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(seeds, "proofs", lambda mark: {"A4.1": ["here"]})
    assert seeds.main(["A4"]) == 1
    assert "1 of 21 statements have a test" in capsys.readouterr().out
    monkeypatch.setattr(seeds, "proofs", lambda mark: {key: ["here"] for key in seeds.statements()})
    assert seeds.main([]) == 0
    monkeypatch.setattr(seeds, "proofs", lambda mark: {key: ["here"] for key in [*seeds.statements(), "A9.9"]})
    assert seeds.main([]) == 1


def test_marks_are_read_from_the_source() -> None:
    source = "@pytest.mark.seed('A4.1', 'A4.2')\n@pytest.mark.slow\nasync def test_one(): pass\ndef test_two(): pass"
    assert list(seeds.marked(ast.parse(source))) == [("test_one", ["A4.1", "A4.2"])]


def test_every_fault_has_a_test_and_no_test_names_another() -> None:
    assert faults.main([]) == 0
    assert list(seeds.marked(ast.parse("@pytest.mark.fault('N1.1')\ndef test_one(): pass"), "fault"))


# --- mutants


@pytest.mark.slow
def test_every_statement_has_a_mutant_which_still_applies_and_tests() -> None:
    known, proofs = seeds.statements(), seeds.proofs()
    for mutant in mutants.mutants():
        text = (seeds.ROOT / mutant.file).read_text()
        assert mutant.applied(text) != text
        assert set(mutant.statements) <= set(known), mutant.name
        assert all(proofs[statement] for statement in mutant.statements), mutant.name
    assert {statement for mutant in mutants.mutants() for statement in mutant.statements} == set(known)


def test_a_mutant_that_no_longer_applies_is_an_error() -> None:
    mutant = mutants.Mutant("gone", ("A4.1",), "engine/x.py", "a = 1", "a = 2")
    assert mutant.applied("a = 1\n") == "a = 2\n"
    for text in ("a = 3\n", "a = 1\na = 1\n"):
        with pytest.raises(ValueError, match=r"'gone': its old text occurs \d times in engine/x\.py"):
            mutant.applied(text)


MUTANT = mutants.Mutant("no sum", ("A9.1",), "tests/test_mutated.py", "1 + 1 == 2", "1 - 1 == 2")
ENOUGH = 60.0
"""Minutes: more than any of these takes, however busy the machine."""
PLAN = mutants.Plan(times=2, minutes=ENOUGH, resume=None)


@pytest.fixture
def tiny_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one test file, which the mutant above breaks."""
    (tmp_path / "tests").mkdir()
    path = tmp_path / MUTANT.file
    path.write_text("def test_sum():\n    assert 1 + 1 == 2\n\n\ndef test_other():\n    pass\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    return path


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_mutant_is_red_where_a_test_of_its_statement_fails_and_the_checkout_stays_as_it_is(
    tiny_tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tiny_tree.read_text()
    assert mutants.run([MUTANT], {"A9.1": [f"{MUTANT.file}::test_sum"]}, PLAN) == 0
    assert "1 of 1 mutants are red, 2 times of 2" in capsys.readouterr().out
    once = mutants.Plan(1, ENOUGH, None)
    assert mutants.run([MUTANT], {"A9.1": [f"{MUTANT.file}::test_other"]}, once) == 1
    assert "not red: no sum (A9.1): green" in capsys.readouterr().out
    assert mutants.run([MUTANT], {"A9.1": [f"{MUTANT.file}::test_nowhere"]}, once) == 1
    assert "not red: no sum (A9.1): broken without it" in capsys.readouterr().out
    tiny_tree.write_text(before + "\n\ndef test_red():\n    assert 1 + 2 == 2\n")
    assert mutants.run([MUTANT], {"A9.1": [f"{MUTANT.file}::test_red"]}, once) == 1
    assert "not red: no sum (A9.1): red without it" in capsys.readouterr().out
    tiny_tree.write_text(before)
    assert tiny_tree.read_text() == before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_the_time_did_not_suffice_for_is_run_the_next_time(
    tiny_tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proofs, resume = {"A9.1": [f"{MUTANT.file}::test_sum"]}, tmp_path / "outcomes"
    assert mutants.run([MUTANT], proofs, mutants.Plan(2, 0.0, resume)) == 3
    assert "1 are left. Run again with the same --resume FILE" in capsys.readouterr().out
    resume.write_text('{"no sum": ["red"]}')
    assert mutants.run([MUTANT], proofs, mutants.Plan(2, ENOUGH, resume)) == 0
    assert json.loads(resume.read_text()) == {"no sum": ["red", "red"]}
    assert capsys.readouterr().out.count("red      no sum") == 1, "the outcome of before is not run again"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_test_that_went_red_is_the_first_the_next_time(tiny_tree: Path, tmp_path: Path) -> None:
    """What comes before it may take long: it runs once. Without the mutant, the one that went red runs alone."""
    ran = tmp_path / "ran"
    slow = f"def test_slow():\n    with open({str(ran)!r}, 'a') as log:\n        log.write('x')\n\n\n"
    tiny_tree.write_text(slow + tiny_tree.read_text())
    tests = {"A9.1": [f"{MUTANT.file}::test_slow", f"{MUTANT.file}::test_sum"]}
    assert mutants.run([MUTANT], tests, mutants.Plan(3, ENOUGH, None)) == 0
    assert ran.read_text() == "x"
