"""ARCHITECTURE.md's way of one spoken turn is the code's own: each step names a function that exists, and each hands on
to the next one by a name that both of them use."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| (\d+) \| .+? \| \[(.+?)\]\(\1?.*?\) \| `(.+?)` \| `(.+?)` \|$", re.MULTILINE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the table: a function, and the name by which it hands on to the next row's."""

    number: int
    path: str
    function: str
    by: str

    def __str__(self) -> str:
        return f"{self.number} {self.path} {self.function}"


def steps(page: str) -> list[Step]:
    """The rows of the table, in order."""
    return [Step(int(number), path, function, by) for number, path, function, by in ROW.findall(page)]


STEPS = steps((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))


@cache
def functions(path: str) -> dict[str, Function]:
    """The functions of a module by their names, those of classes as ``Class.name``."""
    found: dict[str, Function] = {}
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        for inner in node.body if isinstance(node, ast.ClassDef) else (node,):
            if isinstance(inner, Function):
                found[f"{node.name}.{inner.name}" if isinstance(node, ast.ClassDef) else inner.name] = inner
    return found


def names_in(function: Function) -> set[str]:
    """Every identifier in a function, its annotations included."""
    found: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                found.add(name)
            case _:
                pass
    return found


def reached(path: str, function: str) -> set[str]:
    """The identifiers in a function, and in all functions of its module that it reaches by their names."""
    found, waiting = set[str](), [function]
    by_name: dict[str, list[str]] = {}
    for name in functions(path):
        by_name.setdefault(name.rpartition(".")[2], []).append(name)
    seen = {function}
    while waiting:
        new = names_in(functions(path)[waiting.pop()])
        found |= new
        further = {name for one in new for name in by_name.get(one, ())} - seen
        seen |= further
        waiting += sorted(further)
    return found


def hands_on(step: Step, following: Step) -> bool:
    """Whether both steps bear the name by which the first hands on, or use it."""
    return all(step.by in {own_name(one), *reached(one.path, one.function)} for one in (step, following))


def own_name(step: Step) -> str:
    return step.function.rpartition(".")[2]


def test_the_table_goes_from_the_microphone_to_the_first_packet() -> None:
    assert [step.number for step in STEPS] == list(range(1, len(STEPS) + 1))
    assert len(STEPS) > 20
    assert STEPS[0].path == STEPS[-1].path


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_each_step_names_a_function_of_its_file(step: Step) -> None:
    assert (ROOT / step.path).is_file()
    assert step.function in functions(step.path)


@pytest.mark.parametrize("pair", list(pairwise(STEPS)), ids=lambda pair: str(pair[0]))
def test_each_step_hands_on_to_the_next(pair: tuple[Step, Step]) -> None:
    assert hands_on(*pair)


def test_the_last_step_sends() -> None:
    assert STEPS[-1].by in reached(STEPS[-1].path, STEPS[-1].function)


def test_a_step_that_is_left_out_is_missed() -> None:
    """The negative control: without its middle, the way is broken."""
    broken = [pair for pair in zip(STEPS, STEPS[2:], strict=False) if not hands_on(*pair)]
    assert len(broken) > len(STEPS) / 2
