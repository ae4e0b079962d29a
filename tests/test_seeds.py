"""The table of statements and their tests is true: no test names what is no statement, and a missing one is seen."""

from __future__ import annotations

import ast

import pytest

from scripts import faults, seeds


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
