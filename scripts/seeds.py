"""List the statements about five seed systems and the tests that prove them; fails if a statement has no test.

    python -m scripts.seeds [--markdown | --check] [A0 A4 ...]
    python -m scripts.seeds --mutate [--times 3] [--minutes 9] [--resume FILE] [A0 A4.3 ...]

The statements are in `tests/seeds/statements.txt`; a test proves some with ``@pytest.mark.seed("A4.3", ...)``. Tests
are parsed, not run, which takes a second. If a situation cannot occur in this design, the test that shows it is marked.

``--mutate`` checks the tests: each mutant of `tests/seeds/mutants.toml` deletes a behaviour in a copy of the
repository, and a test of its statement must fail. It stops after ``--minutes``; the same ``--resume FILE`` continues.
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
    """Return the statements by number."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {number: words.strip() for number, _, words in (line.partition(" ") for line in lines)}


def proofs(mark: str = "seed", tests: Path = ROOT / "tests") -> dict[str, list[str]]:
    """Return the tests with the mark, as ``path::name``, by the statements that they name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(tests.rglob("test_*.py")):
        for name, numbers in marked(ast.parse(path.read_text()), mark):
            for number in numbers:
                found[number].append(f"{path.relative_to(tests.parent)}::{name}")
    return found


def marked(tree: ast.AST, mark: str = "seed") -> Iterator[tuple[str, list[str]]]:
    """Yield the tests of a module that have the mark, with the statements that each names."""
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
    """Run the mutants of all or the named statements, each of which must fail a test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("statements", nargs="*", help="only these, such as A4 or A4.3")
    parser.add_argument("--mutate", action="store_true")
    parser.add_argument("--times", type=int, default=1, help="how often each must be red")
    parser.add_argument("--minutes", type=float, default=9.0, help="time limit; continue with --resume")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="file that keeps the outcomes; use a new one after changes"
    )
    options = parser.parse_args(arguments)
    asked = set(options.statements)
    chosen = [
        mutant
        for mutant in mutants.mutants()
        if not asked or any({one, one.partition(".")[0]} & asked for one in mutant.statements)
    ]
    return mutants.run(chosen, proofs(), mutants.Plan(options.times, options.minutes, options.resume))


def table(arguments: Sequence[str], description: str | None, source: Path, mark: str) -> int:
    """Print the tests with ``mark`` for each statement of a file. Returns 1 if a statement has none."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="*", help="only these, such as A4")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--check", action="store_true", help="print only what is missing")
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
