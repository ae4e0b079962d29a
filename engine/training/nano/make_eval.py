"""Writes the generated evaluation sets, once, before any training: ``python -m engine.training.nano.make_eval``.

``eval/typed_refuse.txt`` and ``eval/spoken_out_of_domain.txt`` are written by hand. A set is never overwritten: the
samplers of training exclude the sentences of the sets, so a second run would write others.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

from engine.training.nano.dialogues import EVAL, SLOTS, Request, expand, expect_of, sample_request
from engine.training.nano.judge import plain_words
from engine.training.nano.lexicon import dictionary_words, is_held_out_pair, is_held_out_word
from engine.training.nano.templates import REQUESTS, TYPED_ONLY

SENTENCES = """
Hello world
The quick brown fox jumps over the fence
Anna lives in Copenhagen
I love sunny mornings in May
My dog Barkley chases pigeons
We will meet again tomorrow
Never give up
Please bring me a glass of water
Good things come to those who wait
Peter Piper picked a peck of peppers
Dr. Watson called Mr. Holmes
To be, or not to be
She sells sea shells by the sea shore
It's a beautiful day, isn't it
Open sesame
Xylophones and zithers sound strange
Mississippi
Supercalifragilistic
Thank you very much, Mr. Roboto
The rain in Spain stays in the plain
Life is like a box of chocolates
Row, row, row your boat
Winter is coming
I have never been to Reykjavik
Ich bin ein Berliner
What time is it
Two plus two is five
My name is Inigo Montoya
Hakuna matata
Don't panic
Tell me a joke
red red blue red blue blue
one two three four five six seven
Guten Tag, Frau Schneider
You know nothing, Jon Snow
Ada Lovelace wrote the first program
Better late than never
The cat sat on the mat
Practice makes perfect
Elementary, my dear Watson
""".strip().splitlines()

SPOKEN_COUNTS = {
    "repeat": 34, "spell": 26, "sum": 24, "minus": 16, "times": 8, "next": 4, "count": 8, "calendar": 14, "time": 14,
    "date": 12, "greet": 8, "bye": 6, "thanks": 5, "howareyou": 6, "name": 6, "abilities": 6, "limits": 3, "what": 5,
    "maker": 3, "where": 3, "hear": 4, "language": 4, "joke": 6, "coin": 3, "compliment": 4, "mood_good": 3,
    "mood_bad": 3, "see": 5, "list": 2, "alphabet": 2, "my_name": 6,
}  # fmt: skip


def main() -> None:
    rng = random.Random(20)
    write(EVAL / "spoken_in_domain.jsonl", spoken(rng))
    write(EVAL / "typed_repeat.jsonl", distinct(120, lambda i: typed_repeat(rng, i)))
    write(EVAL / "typed_spell.jsonl", distinct(120, lambda _: typed_spell(rng)))
    write(EVAL / "typed_sums.jsonl", distinct(120, lambda i: typed_sum(rng, "sum" if i % 2 else "minus")))


def spoken(rng: random.Random) -> list[Request]:
    made = []
    for kind, count in SPOKEN_COUNTS.items():
        made += distinct(count, lambda _, kind=kind: sample_request(rng, kind))
    return made


def typed_repeat(rng: random.Random, i: int) -> Request:
    """A third are the sentences above, a third held-out words, a third any words of the dictionary."""
    template = expand(rng, rng.choice(REQUESTS["repeat"][:3] + TYPED_ONLY["repeat"]))
    held_out = [word for word in dictionary_words() if is_held_out_word(word)]
    source = held_out if i % 3 == 1 else dictionary_words()
    words = SENTENCES[i // 3] if i % 3 == 0 else " ".join(rng.choices(source, k=rng.randint(1, 8)))
    text = template.replace("{words}", words).replace("{word}", words)
    return Request(text[:1].upper() + text[1:], {"kind": "repeat", "words": words})


def typed_spell(rng: random.Random) -> Request:
    template = expand(rng, rng.choice(REQUESTS["spell"] + TYPED_ONLY["spell"]))
    word = rng.choice([word for word in dictionary_words() if is_held_out_word(word) and len(word) > 2])
    return Request(template.replace("{word}", word), {"kind": "spell", "word": word})


def typed_sum(rng: random.Random, kind: str) -> Request:
    """Both numbers have two digits, as digits or words; training never sees the pair."""
    while not is_held_out_pair(a := rng.randint(10, 99), b := rng.randint(10, 99)):
        pass
    template = expand(rng, rng.choice(REQUESTS[kind] + TYPED_ONLY[kind]))
    in_words = rng.random() < 0.4 and template.replace("{", "").replace("}", "").replace(" ", "").isalpha()
    shown = {"a": SLOTS["a"][a] if in_words else str(a), "b": SLOTS["b"][b] if in_words else str(b)}
    text = template.replace("{a}", shown["a"]).replace("{b}", shown["b"])
    return Request(text, expect_of(kind, text, shown))


def distinct(count: int, make: Callable[[int], Request]) -> list[Request]:
    made: dict[str, Request] = {}
    while len(made) < count:
        request = make(len(made))
        made.setdefault(" ".join(plain_words(request.text)), request)
    return list(made.values())


def write(path: Path, requests: list[Request]) -> None:
    if path.exists():
        sys.exit(f"{path} exists and is not overwritten: evaluation sets must not change after training")
    path.write_text("".join(json.dumps({"text": r.text, "expect": r.expect}) + "\n" for r in requests))


if __name__ == "__main__":
    main()
