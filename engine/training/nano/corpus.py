"""Text for the teacher to read: spoken lower-case English, deterministic by seed.

Mixes four sources: template sentences of an assistant; sentences from the bigram model in the pocketsphinx wheel; rare
words of its pronunciation dictionary in short frames, each about once; and the genres of `everyday`. Sentences of
`eval/` never occur. All numerals are spelled out.

    python -m engine.training.nano.corpus --count 14000 --seed 7 --work DIR --voice rms

writes DIR/rms/corpus.tsv (id<TAB>text), and DIR/lm.arpa as an intermediate file.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pocketsphinx

from engine.english.speller import Speller
from engine.training.nano.assistant import assistant_turn
from engine.training.nano.everyday import everyday
from engine.worker.models.nano.voice import VOICES

WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
MODEL = Path(pocketsphinx.__file__).parent / "model" / "en-us"
# Words that the teacher expands or spells when it meets them, so that letters and phones would not agree.
UNREADABLE = frozenset(
    [
        "st",
        "dr",
        "mr",
        "mrs",
        "ms",
        "vs",
        "jr",
        "sr",
        "mt",
        "ft",
        "lt",
        "sgt",
        "gen",
        "rep",
        "sen",
        "prof",
        "pm",
        "tv",
        "uk",
        "hm",
        "hmm",
        "mhm",
        "api",
        "etc",
    ]
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=14000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--everyday", type=float, default=0.5, help="share of sentences from everyday.py")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--voice", choices=VOICES, default=VOICES[0])
    args = parser.parse_args()
    home = args.work / args.voice
    home.mkdir(parents=True, exist_ok=True)
    lines = itertools.islice(unseen(sentences(args.seed, args.work, args.everyday), evaluated()), args.count)
    with (home / "corpus.tsv").open("w") as out:
        out.writelines(f"u{i:05d}\t{line}\n" for i, line in enumerate(lines))


def evaluated() -> set[str]:
    """Return every sentence of `eval/`, as written and as the front end spells it, normalised."""
    out = set[str]()
    for path in (Path(__file__).parent / "eval").glob("*.txt"):
        for line in path.read_text().splitlines():
            speller = Speller()
            out |= {normalise(line), normalise((speller.feed(line) + speller.flush()).letters)}
    return out


def unseen(lines: Iterator[str], excluded: set[str]) -> Iterator[str]:
    """Drop repetitions, and every sentence that equals an excluded one after `normalise`."""
    seen = set(excluded)
    for line in lines:
        key = normalise(line)
        if key not in seen:
            seen.add(key)
            yield line


def normalise(line: str) -> str:
    """Return letters and single spaces in lower case, so that texts that sound alike compare equal."""
    return " ".join(re.findall(r"[a-z']+", line.lower()))


def sentences(seed: int, work: Path, share: float = 0.0) -> Iterator[str]:
    """Yield an endless mix of the sources, with the given share of `everyday`."""
    rng = random.Random(seed)
    language = Bigrams.bundled(work)
    rare = rare_words(language, rng)
    while True:
        if share and rng.random() < share:
            yield everyday(rng)
            continue
        draw = rng.random()
        if draw < 0.40:
            yield assistant_turn(rng)
        elif draw < 0.70:
            yield language.sentence(rng)
        else:
            yield rare_sentence(rng, rare)


class Bigrams:
    """Bigrams of the bundled language model, restricted to readable dictionary words.

    unigram[word] is log10 p; following[word] is (words, cumulative weights) for drawing the next word.
    """

    def __init__(self, unigram: dict[str, float], following: dict[str, tuple[list[str], list[float]]]) -> None:
        self.unigram = unigram
        self.following = following

    @classmethod
    def bundled(cls, work: Path) -> Bigrams:
        words = {word for word in dictionary() if len(word) > 1 or word in "ai"} - UNREADABLE
        nexts = words | {"</s>"}
        unigram: dict[str, float] = {}
        pairs: dict[str, list[tuple[str, float]]] = defaultdict(list)
        for order, fields in arpa_entries(bundled_arpa(work)):
            if order == 1 and fields[1] in words:
                unigram[fields[1]] = float(fields[0])
            elif order == 2 and fields[2] in nexts:
                pairs[fields[1]].append((fields[2], 10 ** (0.8 * float(fields[0]))))
        following = {}
        for word, options in pairs.items():
            following[word] = ([w for w, _ in options], list(itertools.accumulate(p for _, p in options)))
        return cls(unigram, following)

    def sentence(self, rng: random.Random) -> str:
        while True:
            words = self._walk(rng)
            if len(words) >= 3:
                break
        if len(words) > 6 and rng.random() < 0.4:
            words[rng.randrange(2, len(words) - 2)] += ","
        return " ".join(words) + rng.choice("...?")

    def _walk(self, rng: random.Random) -> list[str]:
        word, words = "<s>", list[str]()
        while len(words) < 12 and word in self.following:
            options, cumulated = self.following[word]
            word = options[bisect.bisect(cumulated, rng.random() * cumulated[-1])]
            if word == "</s>":
                break
            words.append(word)
        return words


def bundled_arpa(work: Path) -> Path:
    """Write the wheel's binary model as text, once.

    The library's writer crashes in the trigrams, after the needed part, so it runs in a child process.
    """
    target = work / "lm.arpa"
    if not target.exists():
        script = (
            "from pocketsphinx import Config, LogMath, NGramModel\n"
            f"model = NGramModel(Config(), LogMath(), {str(MODEL / 'en-us.lm.bin')!r})\n"
            f"model.write({str(target)!r}, model.str_to_type('arpa'))\n"
        )
        subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    return target


def arpa_entries(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (order, [log10 p, words...]) for the 1- and 2-grams of a tab-separated text model."""
    order = 0
    with path.open(errors="ignore") as lines:
        for line in lines:
            if line.startswith("\\"):
                order = int(line[1]) if line[1].isdigit() else 0
            elif order in (1, 2) and line.count("\t") >= order:
                fields = line.split("\t")[: order + 1]
                if re.fullmatch(r"-?\d+\.\d+", fields[0]):
                    yield order, [field.strip() for field in fields]


def dictionary() -> dict[str, list[str]]:
    """Return the bundled pronunciation dictionary (word to phones): first pronunciations of plain words."""
    out = {}
    for line in (MODEL / "cmudict-en-us.dict").read_text().splitlines():
        word, *phones = line.split()
        if WORD.fullmatch(word):
            out[word] = phones
    return out


def rare_words(language: Bigrams, rng: random.Random) -> Iterator[str]:
    """Yield readable words of medium and low frequency endlessly, each once per round in random order."""
    words = sorted(word for word, p in language.unigram.items() if -6.9 < p < -4.2 and len(word) > 2)
    while True:
        rng.shuffle(words)
        yield from words


def rare_sentence(rng: random.Random, rare: Iterator[str]) -> str:
    """Return three to six rare words, usually connected by short common words."""
    count = rng.randrange(3, 7)
    if rng.random() < 0.2:
        return " ".join(next(rare) for _ in range(count)) + "."
    words = [rng.choice(("the", "a", "her", "his", "some", "our", "this", "every", "one", "two", "")), next(rare)]
    for _ in range(count - 1):
        words += [
            rng.choice(("", "", "the", "of the", "and", "in the", "is", "was", "with", "for", "to", "on a", "from")),
            next(rare),
        ]
    if rng.random() < 0.25:
        words[rng.randrange(2, len(words) - 1)] += ","
    return " ".join(" ".join(words).replace(" ,", ",").split()) + rng.choice("....?")


if __name__ == "__main__":
    main()
