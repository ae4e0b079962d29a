"""Print the docstrings that begin without a subject; fails where they are more than 3 % of all.

    python scripts/sentences.py [--sample N --seed S] [PATH ...]

The docstrings of modules, classes and functions count, and the strings below attributes and constants. A reader whose
first language is another looks for the subject first, so a docstring may begin in one of three ways: with a noun phrase
that names the thing ("The next packet, if it is due."), with a verb in the imperative ("Return the next packet."), or
with a full sentence. "Whether ..." is the usual form for a bool. Nobody but a reader can tell all others from these, so
the script knows only the openings that never have a subject:

- a question word without a noun: "What a client gets first.", "Who asks.", "How long it may take.";
- a preposition, an adverb or a conjunction: "Of the input, the pictures.", "Between a session and its client.";
- a noun left to the name or to another docstring: "One session's.", "Those of a call.", "The same, for calls.";
- a verb that tells what somebody does, and not who: "Knows no socket.". "Raises ..." is the usual form for errors.

``--sample`` prints that many docstrings, drawn at random from all, to be read by a person.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ("app", "benchmarks", "engine", "scripts", "web")
EXEMPT = ("training", "node_modules")
"""The folders that are not looked into: how weights were made, and the libraries of the page."""
BAR = 0.03

QUESTIONS = "how however what whatever when whenever where wherever which whichever who whoever whom whose why"
PREPOSITIONS = (
    "about above after along among around as at because before behind below beside besides between beyond by down"
    " during except for from in inside into like of off on out outside over per since than through till to toward"
    " towards under until unlike up upon via with within without"
)
ADVERBS = (
    "afterwards again already also always else ever later less meanwhile more most never not once only rather soon"
)
CONJUNCTIONS = "and but if lest nor or so though unless while yet"
PRONOUNS = "he hers him his mine ours she such that theirs those yours"
VERBS = (
    "are asks begins brings comes decides decodes ends finds follows forgets gives goes has hears holds is keeps knows"
    " leaves looks makes needs picks plays puts reads runs says sends speaks stands starts takes tells was were writes"
)
HEADLESS = frozenset(f"{QUESTIONS} {PREPOSITIONS} {ADVERBS} {CONJUNCTIONS} {PRONOUNS} {VERBS}".split())
NOUN_PHRASE = re.compile(
    r"(above|at (least|most)|less|more|most|once|only|such|up to) (a|an|one|two|the|of the|[0-9]+)\b", re.IGNORECASE
)
"""Openings that look like one of those, and name a thing: "At most two requests.", "More than one is refused."."""
NOUNLESS = re.compile(r"(the (same|other|others|rest)|(one|the) [a-z]+'s)[,.:;]", re.IGNORECASE)
"""Openings that leave their noun to another place: "The same, for calls.", "One session's."."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign)
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Docstring:
    """One docstring, or the string below an attribute."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text.splitlines()[0] if self.text else ''}"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Print what there is; 1 where too many docstrings begin without a subject."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=TREE, metavar="PATH", help="files or folders, from the root")
    parser.add_argument("--sample", type=int, metavar="N", help="print N docstrings, drawn from all")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="which docstrings are drawn")
    options = parser.parse_args(arguments)
    files = sources(root, options.paths)
    found = [one for file in files for one in docstrings(file.read_text("utf-8"), str(file.relative_to(root)))]
    if options.sample is not None:
        found = random.Random(options.seed).sample(found, min(options.sample, len(found)))
    headless = [one for one in found if begins_without_subject(one.text)]
    for one in sorted(headless if options.sample is None else found):
        print(one)
    share = len(headless) / max(1, len(found))
    print(f"{len(headless)} of {len(found)} docstrings begin without a subject ({share:.1%})")
    return int(options.sample is None and share > BAR)


def begins_without_subject(text: str) -> bool:
    """Whether a docstring has one of the openings that are no noun, no imperative and no sentence."""
    word = _WORD.match(text)
    if word is None or NOUN_PHRASE.match(text):
        return False
    return word[0].lower() in HEADLESS or bool(NOUNLESS.match(text))


def sources(root: Path, paths: Sequence[str]) -> list[Path]:
    """The Python files below the paths, in order. Raises FileNotFoundError for a path that does not exist."""
    found: set[Path] = set()
    for path in paths:
        whole = root / path
        if not whole.exists():
            raise FileNotFoundError(f"there is no {path}")
        found.update([whole] if whole.is_file() else whole.rglob("*.py"))
    return sorted(path for path in found if not {*EXEMPT} & {*path.relative_to(root).parts})


def docstrings(source: str, path: str) -> Iterator[Docstring]:
    """Every docstring of a module, with its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Module(body=body) | ast.ClassDef(body=body) | ast.If(body=body):
                yield from _strings([node, *body], path)
            case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
                yield from _strings([node, *body], path)
            case _:
                pass


def _strings(nodes: Sequence[ast.AST], path: str) -> Iterator[Docstring]:
    """The strings that stand below what they document: ``nodes`` are a block and its statements."""
    for before, statement in pairwise(nodes):
        match statement:
            case ast.Expr(value=ast.Constant(value=str(text))) if isinstance(before, DOCUMENTED):
                yield Docstring(path, statement.lineno, text.strip())
            case _:
                pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
