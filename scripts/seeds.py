"""The statements about five seed systems that the tests prove, as a table; fails where one has no test.

    python -m scripts.seeds [--markdown | --check] [A0 A4 ...]
    python -m scripts.seeds --mutate [--times 3] [--minutes 9] [--resume FILE] [A0 A4.3 ...]

The statements are `tests/seeds/statements.txt`; a test proves some by ``@pytest.mark.seed("A4.3", ...)``. Tests are
read, not run: it takes a second. Where a statement cannot arise in this design, the test that shows so carries it.

``--mutate`` proves the proofs: each mutant of `tests/seeds/mutants.toml` deletes a behaviour in a copy of the tree, and
a test of its statement must go red. After ``--minutes`` it stops, and goes on with the same ``--resume FILE``.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts import mutants

ROOT = Path(__file__).resolve().parent.parent
STATEMENTS = ROOT / "tests" / "seeds" / "statements.txt"


def statements(path: Path = STATEMENTS) -> dict[str, str]:
    """Each statement's number and its words."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {number: words.strip() for number, _, words in (line.partition(" ") for line in lines)}


def proofs(mark: str = "seed", tests: Path = ROOT / "tests") -> dict[str, list[str]]:
    """The tests that carry ``mark``, by the statements that they name, as ``path::name``."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(tests.rglob("test_*.py")):
        for name, numbers in marked(ast.parse(path.read_text()), mark):
            for number in numbers:
                found[number].append(f"{path.relative_to(tests.parent)}::{name}")
    return found


def marked(tree: ast.AST, mark: str = "seed") -> Iterator[tuple[str, list[str]]]:
    """The tests of a module that carry the mark, and the statements that each names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for one in node.decorator_list:
                if isinstance(one, ast.Call) and ast.unparse(one.func) == f"pytest.mark.{mark}":
                    yield node.name, [ast.literal_eval(argument) for argument in one.args]


def main(arguments: Sequence[str]) -> int:
    if "--mutate" in arguments:
        return mutate(arguments)
    return table(arguments, __doc__, STATEMENTS, "seed")


def mutate(arguments: Sequence[str]) -> int:
    """Run the mutants of all statements, or of those that are named, and expect red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("statements", nargs="*", help="only these, like A4 or A4.3")
    parser.add_argument("--mutate", action="store_true")
    parser.add_argument("--times", type=int, default=1, help="how often each must be red")
    parser.add_argument("--minutes", type=float, default=9.0, help="stop after so many, and go on with --resume")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep the outcomes there; a new file after changes")
    options = parser.parse_args(arguments)
    asked = set(options.statements)
    chosen = [
        mutant
        for mutant in mutants.mutants()
        if not asked or any({one, one.partition(".")[0]} & asked for one in mutant.statements)
    ]
    return mutants.run(chosen, proofs(), mutants.Plan(options.times, options.minutes, options.resume))


def table(arguments: Sequence[str], description: str | None, source: Path, mark: str) -> int:
    """Print which tests carry ``mark`` for which statements of a file; 1 where one has none."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="*", help="only these, like A4")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--check", action="store_true", help="say only what is missing")
    options = parser.parse_args(arguments)
    known, found = statements(source), proofs(mark)
    asked = [number for number in known if not options.systems or number.partition(".")[0] in options.systems]
    for number in asked if not options.check else ():
        show(number, known[number], found.get(number, []), options.markdown)
    missing = [number for number in asked if not found.get(number)]
    strange = sorted(set(found) - set(known))
    print(f"\n{len(asked) - len(missing)} of {len(asked)} statements have a test")
    if missing:
        print(f"without one: {', '.join(missing)}")
    if strange:
        print(f"named by a test, but not a statement: {', '.join(strange)}")
    return int(bool(missing or strange))


def show(number: str, words: str, tests: Sequence[str], markdown: bool) -> None:
    if markdown:
        print(f"| {number} | {words} | {'<br>'.join(f'`{test}`' for test in tests)} |")
    else:
        print(f"{number:6} {words}")
        print("".join(f"         {test}\n" for test in tests) or "         -\n", end="")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
