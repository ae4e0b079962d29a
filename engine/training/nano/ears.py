"""Builds the speech recognition grammar: the automaton of all supported requests, and their pronunciations.

    python -m engine.training.nano.ears            # writes engine/weights/nano/ears/{requests,phones}.{fsg,dict}

The templates of ``dialogues``, and the ``ASIDES`` spoken over an answer, become one minimal acyclic automaton over
words. Its arcs are weighted by their frequency in samples. Pronunciations come from the CMU dictionary in the
pocketsphinx wheel.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pocketsphinx

from engine.training.nano.dialogues import SLOTS, heard_templates, sample_heard
from engine.training.nano.turns import expand

OUT = Path(__file__).parents[2] / "weights" / "nano" / "ears"
LONGEST_REPEAT = 4  # maximum words for {words}
PRONUNCIATIONS = {
    "nano": ("N AE N OW", "N AA N OW"), "hmm": ("HH M", "HH AH M"), "mm-hm": ("M HH M", "AH M HH AH M"),
}  # fmt: skip
"""Pronunciations that the dictionary lacks, or that differ from common usage."""

ASIDES = {
    "listening": (
        "(mm-hm|uh-huh|hmm|aha|ah|oh|ooh|wow|oh wow|yeah|yeah yeah|oh yeah|yep|yes|yes yes|okay|okay okay|oh okay"
        "|all right|i see|oh i see|right|right right|oh right|sure|good|oh good|great|oh great|nice|oh nice|cool"
        "|fine|exactly|true|really|oh really|indeed|absolutely|totally|definitely|got it|of course|that's right"
        "|makes sense)"
    ),
    "interrupting": (
        "(stop|stop it|please stop|okay stop|stop talking|shut up|be quiet|quiet|enough|cancel|no|no no|no wait"
        "|wait|hold on|hang on|wait a second|wait a minute|one moment|pause|hey|listen|sorry|excuse me|what|why"
        "|but|not that|that's wrong|never mind|again|repeat that|next|please|help|louder|slower|thanks|thank you)"
    ),
}
"""Templates for speech over an answer: backchannels, which let it continue, and interruptions. Without the latter, a
"no" would be recognized as "oh". Each kind is sampled as often as all requests together.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=200_000, help="number of sampled requests for the arc weights")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    automaton = requests_automaton()
    rng = random.Random(args.seed)
    counts = automaton.count(sample(rng).split() for _ in range(args.samples))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "requests.fsg").write_text(automaton.as_fsg("requests", counts))
    (args.out / "requests.dict").write_text(dictionary(automaton.words))
    phones = sorted({phone for line in dictionary(automaton.words).splitlines() for phone in line.split()[1:]})
    (args.out / "phones.fsg").write_text(phone_loop(phones))
    (args.out / "phones.dict").write_text("".join(f"_{phone.lower()} {phone}\n" for phone in phones))
    arcs = sum(len(arcs) for arcs in automaton.arcs)
    print(f"{len(automaton.arcs)} states, {arcs} arcs, {len(automaton.words)} words -> {args.out}")


def sample(rng: random.Random) -> str:
    """Return a request, or speech over an answer."""
    kind = rng.choice((None, *ASIDES))
    return sample_heard(rng) if kind is None else expand(rng, ASIDES[kind])


@dataclass(frozen=True, slots=True)
class Automaton:
    """Deterministic acyclic automaton over words; state 0 is the start. ``arcs[state]`` maps a word to a state."""

    arcs: list[dict[str, int]]
    final: frozenset[int]

    @property
    def words(self) -> list[str]:
        return sorted({word for arcs in self.arcs for word in arcs})

    def accepts(self, words: Iterable[str]) -> bool:
        state: int | None = 0
        for word in words:
            state = self.arcs[state].get(word)
            if state is None:
                return False
        return state in self.final

    def count(self, sentences: Iterable[Iterable[str]]) -> dict[tuple[int, str], int]:
        """Return how often each arc is taken; the arc of the word "" is the end."""
        taken: dict[tuple[int, str], int] = defaultdict(int)
        for sentence in sentences:
            state = 0
            for word in sentence:
                taken[state, word] += 1
                state = self.arcs[state][word]
            taken[state, ""] += 1
        return taken

    def as_fsg(self, name: str, counts: Mapping[tuple[int, str], int]) -> str:
        """Return Sphinx' text format with one final state, reached from every state where a request may end."""
        end = len(self.arcs)
        lines = [f"FSG_BEGIN {name}", f"NUM_STATES {end + 1}", "START_STATE 0", f"FINAL_STATE {end}"]
        for state, arcs in enumerate(self.arcs):
            targets = arcs | ({"": end} if state in self.final else {})
            seen = {word: counts.get((state, word), 0) + 0.5 for word in targets}  # no arc is impossible
            total = sum(seen.values())
            lines += [
                f"TRANSITION {state} {target} {seen[word] / total:.6f} {word}".rstrip()
                for word, target in targets.items()
            ]
        return "\n".join([*lines, "FSG_END", ""])


def requests_automaton() -> Automaton:
    """Return the minimal automaton of all supported requests and asides."""
    builder = _Builder()
    for template in chain(ASIDES.values(), *heard_templates().values()):
        builder.add(template)
    return _minimal(_deterministic(builder))


def dictionary(words: Iterable[str]) -> str:
    """Return pronunciations in Sphinx' text format. Raises KeyError for words without one."""
    known = _cmu_dictionary()
    lines = []
    for word in words:
        for i, phones in enumerate(PRONUNCIATIONS.get(word) or known[word]):
            lines.append(f"{word}{f'({i + 1})' if i else ''} {phones}")
    return "\n".join([*lines, ""])


def phone_loop(phones: Iterable[str]) -> str:
    """Return a grammar of any phone sequence without costs, the best explanation for arbitrary speech."""
    lines = ["FSG_BEGIN phones", "NUM_STATES 2", "START_STATE 0", "FINAL_STATE 1"]
    lines += [f"TRANSITION 0 0 1.0 _{phone.lower()}" for phone in phones]
    return "\n".join([*lines, "TRANSITION 0 1 1.0", "FSG_END", ""])


def _cmu_dictionary() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    path = Path(pocketsphinx.get_model_path()) / "en-us" / "cmudict-en-us.dict"
    for line in path.read_text().splitlines():
        word, phones = line.split(maxsplit=1)
        found[re.sub(r"\(\d+\)$", "", word)].append(phones)
    return dict(found)


@dataclass(slots=True)
class _Builder:
    """Nondeterministic automaton, built template by template. Arcs of the word "" consume no word."""

    arcs: list[list[tuple[str, int]]] = field(default_factory=lambda: [[], []])  # state 0 starts, state 1 ends

    def add(self, template: str) -> None:
        end = self._alternatives(iter(re.findall(r"[()|]|\{\w+\}|[^\s()|{}]+", template)), 0)
        self.arcs[end].append(("", 1))

    def _state(self) -> int:
        self.arcs.append([])
        return len(self.arcs) - 1

    def _alternatives(self, tokens: Iterator[str], start: int) -> int:
        """Parse until the closing parenthesis or the end, and return the state after it."""
        end, at = self._state(), start
        for token in tokens:
            if token == ")":
                break
            if token == "|":
                self.arcs[at].append(("", end))
                at = start
            else:
                at = self._alternatives(tokens, self._fork(at)) if token == "(" else self._token(token, at)
        self.arcs[at].append(("", end))
        return end

    def _fork(self, at: int) -> int:
        fresh = self._state()
        self.arcs[at].append(("", fresh))
        return fresh

    def _token(self, token: str, at: int) -> int:
        if token == "{words}":
            return self._repeated(at)
        if token.startswith("{"):
            return self._any(SLOTS[token[1:-1]], at)
        return self._any((token,), at)

    def _repeated(self, at: int) -> int:
        end = self._state()
        for _ in range(LONGEST_REPEAT):
            at = self._any(SLOTS["word"], at)
            self.arcs[at].append(("", end))
        return end

    def _any(self, phrases: Iterable[str], start: int) -> int:
        end = self._state()
        for phrase in phrases:
            at = start
            for word in phrase.split()[:-1]:
                self.arcs[at].append((word, fresh := self._state()))
                at = fresh
            self.arcs[at].append((phrase.split()[-1], end))
        return end


def _deterministic(builder: _Builder) -> Automaton:
    """Apply the subset construction."""

    def closure(states: Iterable[int]) -> frozenset[int]:
        reached, todo = set(states), list(states)
        while todo:
            fresh = {target for word, target in builder.arcs[todo.pop()] if not word} - reached
            reached |= fresh
            todo += fresh
        return frozenset(reached)

    sets = [closure({0})]
    numbers = {sets[0]: 0}
    arcs: list[dict[str, int]] = []
    for current in sets:  # grows during iteration
        targets: dict[str, set[int]] = defaultdict(set)
        for state in current:
            for word, target in builder.arcs[state]:
                if word:
                    targets[word].add(target)
        arcs.append({})
        for word, states in sorted(targets.items()):
            reached = closure(states)
            if reached not in numbers:
                numbers[reached] = len(sets)
                sets.append(reached)
            arcs[-1][word] = numbers[reached]
    return Automaton(arcs, frozenset(n for n, states in enumerate(sets) if 1 in states))


def _minimal(automaton: Automaton) -> Automaton:
    """Merge states with the same future, bottom-up because there are no cycles."""
    merged: dict[int, int] = {}
    futures: dict[tuple[object, ...], int] = {}

    def merge(state: int) -> int:
        if state not in merged:
            future = tuple((word, merge(target)) for word, target in automaton.arcs[state].items())
            merged[state] = futures.setdefault((state in automaton.final, *future), len(futures))
        return merged[state]

    last = merge(0)  # the start has the longest future, so it was numbered last
    arcs: list[dict[str, int]] = [{} for _ in futures]
    for (_, *future), number in futures.items():
        arcs[last - number] = {word: last - target for word, target in future}  # type: ignore[misc]
    final = frozenset(last - number for (ends, *_), number in futures.items() if ends)
    return Automaton(arcs, final)


if __name__ == "__main__":
    main()
