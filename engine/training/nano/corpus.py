"""The text that the teacher reads: spoken lowercase English, deterministic by seed.

Three sources, mixed: sentences of an assistant from templates; sentences drawn from the bigram model that the
pocketsphinx wheel carries; rare words of its pronunciation dictionary in short frames, each word about once. The
sentences of `eval/` never occur. This module knows no speech and no written numerals: what it prints is already
spelled out.

    python -m engine.training.nano.corpus --count 14000 --seed 7 --work DIR     writes DIR/corpus.tsv (id<TAB>text)
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
from collections.abc import Callable, Iterator
from pathlib import Path

import inflect
import pocketsphinx

from engine.training.nano.phrases import (
    ADJECTIVES,
    CLAUSES,
    COLOURS,
    DAYS,
    FIXED,
    FRAMES,
    MONTHS,
    NAMES,
    NOUNS,
    PLACES,
    SHAPES,
    TOPICS,
    VERBS,
    WEATHER,
)
from engine.worker.lexicon_english import LETTER_NAMES

WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
MODEL = Path(pocketsphinx.__file__).parent / "model" / "en-us"
_ENGINE = inflect.engine()
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
    parser.add_argument("--work", type=Path, required=True)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    excluded = {
        normalise(line)
        for path in (Path(__file__).parent / "eval").glob("*.txt")
        for line in path.read_text().splitlines()
    }
    lines = itertools.islice(unseen(sentences(args.seed, args.work), excluded), args.count)
    with (args.work / "corpus.tsv").open("w") as out:
        out.writelines(f"u{i:05d}\t{line}\n" for i, line in enumerate(lines))


def unseen(lines: Iterator[str], excluded: set[str]) -> Iterator[str]:
    """Drop repeats and every sentence that equals an excluded one after `normalise`."""
    seen = set(excluded)
    for line in lines:
        key = normalise(line)
        if key not in seen:
            seen.add(key)
            yield line


def normalise(line: str) -> str:
    """Letters and single blanks only, lowercase: two texts that sound the same compare equal."""
    return " ".join(re.findall(r"[a-z']+", line.lower()))


def sentences(seed: int, work: Path) -> Iterator[str]:
    """An endless mix of the three sources."""
    rng = random.Random(seed)
    language = Bigrams.bundled(work)
    rare = rare_words(language, rng)
    while True:
        draw = rng.random()
        if draw < 0.40:
            yield assistant_turn(rng)
        elif draw < 0.70:
            yield language.sentence(rng)
        else:
            yield rare_sentence(rng, rare)


def assistant_turn(rng: random.Random) -> str:
    """One sentence of an assistant, at times two, rarely three."""
    count = rng.choices((1, 2, 3), (8, 3, 1))[0]
    return " ".join(template(rng) for _ in range(count))


def number(value: int) -> str:
    """Cardinal words without hyphens: 125 -> one hundred and twenty five."""
    return str(_ENGINE.number_to_words(str(value))).replace("-", " ").replace(",", "")


def ordinal(value: int) -> str:
    return str(_ENGINE.number_to_words(_ENGINE.ordinal(str(value)))).replace("-", " ")


def spelled(word: str) -> str:
    """Letter names: cat -> see, ay, tee."""
    return ", ".join(LETTER_NAMES[letter] for letter in word)


def template(rng: random.Random) -> str:
    """One sentence from the phrase lists or from a pattern with slots."""
    if rng.random() < 0.10:
        return rng.choice(FIXED)
    if rng.random() < 0.30:
        return fill(rng, rng.choice(FRAMES))
    return rng.choice(PATTERNS)(rng)


def fill(rng: random.Random, frame: str) -> str:
    """Replace the slots {noun}, {name}, ... of a frame by random words, each slot anew."""
    return re.sub(r"\{(\w+)\}", lambda m: SLOTS[m[1]](rng), frame)


def _sum(rng: random.Random) -> str:
    kind = rng.choice(("plus", "minus", "times", "divided by"))
    a, b = rng.randrange(1, 100), rng.randrange(1, 100)
    if kind == "minus":
        a, b = max(a, b), min(a, b)
    elif kind != "plus":
        a, b = a % 13 + 1, b % 13 + 1
    left, result = (a, a + b) if kind == "plus" else (a, a - b) if kind == "minus" else (a, a * b)
    if kind == "divided by":
        left, result = a * b, a
    return f"{number(left)} {kind} {number(b)} {rng.choice(('is', 'is', 'equals', 'makes'))} {number(result)}."


def _clock(rng: random.Random) -> str:
    hour, minute = rng.randrange(1, 13), rng.randrange(60)
    minutes = "o'clock" if minute == 0 else f"oh {number(minute)}" if minute < 10 else number(minute)
    tail = rng.choice(("", "", f" {spelled('am').replace(',', '')}", " pee em", " in the morning", " in the afternoon"))
    return f"{rng.choice(('it is', 'the time is', 'right now it is', 'at'))} {number(hour)} {minutes}{tail}."


def _date(rng: random.Random) -> str:
    day, month, year = ordinal(rng.randrange(1, 32)), rng.choice(MONTHS), _year(rng)
    return rng.choice(
        (
            f"today is {rng.choice(DAYS)}, {month} {day}.",
            f"today is {rng.choice(DAYS)}, the {day} of {month}.",
            f"that was on {month} {day}, {year}.",
            f"in {year}, on the {day} of {month}.",
            f"it is the {day}.",
        )
    )


def _year(rng: random.Random) -> str:
    century, rest = rng.choice((18, 19, 19, 20, 20)), rng.randrange(100)
    if century == 20 and rest < 10:
        return "two thousand" + (f" and {number(rest)}" if rest else "")
    return f"{number(century)} " + ("hundred" if rest == 0 else f"oh {number(rest)}" if rest < 10 else number(rest))


def _amount(rng: random.Random) -> str:
    value = rng.choice((rng.randrange(100), rng.randrange(1000), rng.randrange(20000), rng.randrange(2_000_000)))
    digits = " point " + " ".join(number(rng.randrange(10)) for _ in range(rng.randrange(1, 4)))
    unit = rng.choice(
        [
            "dollars",
            "cents",
            "euros",
            "percent",
            "degrees",
            "kilometers",
            "miles",
            "meters",
            "minutes",
            "seconds",
            "hours",
            "kilograms",
            "pounds",
            "grams",
            "days",
            "weeks",
            "years",
            "people",
            "times",
        ]
    )
    opening = rng.choice(("it costs", "that is about", "it takes", "i counted", "the answer is", "almost", "there are"))
    return f"{opening} {number(value)}{digits if rng.random() < 0.2 else ''} {unit}."


def _digits(rng: random.Random) -> str:
    group = [number(rng.randrange(10)) for _ in range(rng.randrange(3, 9))]
    joint = rng.choice((" ", ", "))
    return f"{rng.choice(('the number is ', 'the code is ', 'you said ', ''))}{joint.join(group)}."


def _spelling(rng: random.Random) -> str:
    word = rng.choice(NOUNS + NAMES + [rng.choice(WEATHER)])
    return rng.choice(
        (f"{word} is spelled {spelled(word)}.", f"{spelled(word)}.", f"the word {word}, {spelled(word)}.")
    )


def _letters(rng: random.Random) -> str:
    letters = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 6)))
    loose = spelled(letters).replace(",", "")
    return rng.choice((f"{spelled(letters)}.", f"the {loose} is on {rng.choice(DAYS)}.", f"have you heard of {loose}?"))


def _echo(rng: random.Random) -> str:
    heard = " ".join(rng.sample(NOUNS + ADJECTIVES + COLOURS, rng.randrange(1, 5)))
    return f"{rng.choice(('you said', 'i heard', 'did you say', 'okay'))}{rng.choice((' ', ', '))}{heard}."


def _list(rng: random.Random) -> str:
    items = rng.sample(NOUNS + COLOURS + NAMES, rng.randrange(3, 6))
    return f"{', '.join(items[:-1])}, {rng.choice(('and', 'or'))} {items[-1]}."


def _clauses(rng: random.Random) -> str:
    parts = [fill(rng, rng.choice(CLAUSES)) for _ in range(2)]
    joint = rng.choice((", and ", ", but ", ", so ", " because ", " when ", " if ", ", then ", " while "))
    return parts[0] + joint + parts[1] + rng.choice("...?")


PATTERNS: list[Callable[[random.Random], str]] = [
    _sum, _sum, _clock, _date, _amount, _amount, _digits, _spelling, _letters, _echo, _list,
    _clauses, _clauses, _clauses,
]  # fmt: skip

SLOTS: dict[str, Callable[[random.Random], str]] = {
    "noun": lambda rng: rng.choice(NOUNS),
    "name": lambda rng: rng.choice(NAMES),
    "adjective": lambda rng: rng.choice(ADJECTIVES),
    "colour": lambda rng: rng.choice(COLOURS),
    "shape": lambda rng: rng.choice(SHAPES),
    "place": lambda rng: rng.choice(PLACES),
    "verb": lambda rng: rng.choice(VERBS),
    "day": lambda rng: rng.choice(DAYS),
    "month": lambda rng: rng.choice(MONTHS),
    "topic": lambda rng: rng.choice(TOPICS),
    "weather": lambda rng: rng.choice(WEATHER),
    "number": lambda rng: number(rng.choice((rng.randrange(20), rng.randrange(100), rng.randrange(1000)))),
    "ordinal": lambda rng: ordinal(rng.randrange(1, 32)),
}


class Bigrams:
    """The bigram part of the bundled language model, restricted to readable dictionary words.

    unigram[word] is log10 p; following[word] is (words, cumulated weights) for drawing the next word.
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
    """Write the wheel's binary model as text once. The library's writer fails in the trigrams, after the part needed
    here, so it runs in a child process and only what it wrote counts."""
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
    """(order, [log10 p, words...]) of the 1- and 2-grams of a text model whose fields are split by tabs."""
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
    """The bundled pronunciation dictionary: word -> phones, first pronunciation, plain words only."""
    out = {}
    for line in (MODEL / "cmudict-en-us.dict").read_text().splitlines():
        word, *phones = line.split()
        if WORD.fullmatch(word):
            out[word] = phones
    return out


def rare_words(language: Bigrams, rng: random.Random) -> Iterator[str]:
    """Readable words of medium and low frequency, shuffled, without end; every word comes before one comes twice."""
    words = sorted(word for word, p in language.unigram.items() if -6.9 < p < -4.2 and len(word) > 2)
    while True:
        rng.shuffle(words)
        yield from words


def rare_sentence(rng: random.Random, rare: Iterator[str]) -> str:
    """Three to six rare words, mostly held together by small words as in real sentences."""
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
