"""The dialogue generator keeps evaluation prompts out, and the judge can say no."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import islice

import pytest

from engine.training.nano import dialogues
from engine.training.nano.dialogues import (
    EVAL,
    answers_rightly,
    evaluation_texts,
    read_requests,
    sample_request,
    spoken_vocabulary,
    stream,
    user_templates,
)
from engine.training.nano.judge import plain_words
from engine.training.nano.lexicon import is_held_out_pair


def test_no_dialogue_contains_an_evaluation_prompt_or_a_held_out_pair() -> None:
    forbidden = evaluation_texts()
    assert len(forbidden) > 700
    for dialogue in islice(stream(5), 4000):
        for turn in dialogue:
            assert " ".join(plain_words(turn.request.text)) not in forbidden
            expect = turn.request.expect
            if expect.get("op") in ("plus", "minus"):
                assert not is_held_out_pair(int(expect["a"]), int(expect["b"]))


def test_an_evaluation_prompt_would_be_noticed() -> None:
    prompt = read_requests(EVAL / "spoken_in_domain.jsonl")[0]
    assert not dialogues.allowed(prompt)
    assert not dialogues.allowed(dialogues.Request(prompt.text.upper() + "!", prompt.expect))


def test_the_same_seed_gives_the_same_dialogues() -> None:
    assert list(islice(stream(1), 50)) == list(islice(stream(1), 50))
    assert list(islice(stream(1), 50)) != list(islice(stream(2), 50))


def test_spoken_requests_stay_inside_the_vocabulary() -> None:
    rng, words = random.Random(3), spoken_vocabulary()
    for kind in user_templates():
        for _ in range(20):
            request = sample_request(rng, kind)
            assert set(request.text.split()) <= words


def test_the_sets_are_large_enough_and_the_spoken_one_is_in_vocabulary() -> None:
    spoken = read_requests(EVAL / "spoken_in_domain.jsonl")
    assert len(spoken) >= 200
    assert len(read_requests(EVAL / "spoken_out_of_domain.txt")) == 50
    assert all(set(request.text.split()) <= spoken_vocabulary() for request in spoken)
    for name in ("typed_repeat.jsonl", "typed_spell.jsonl", "typed_sums.jsonl", "typed_refuse.txt"):
        assert len(read_requests(EVAL / name)) >= 100


@pytest.mark.parametrize(
    ("expect", "right", "wrong"),
    [
        ({"kind": "repeat", "words": "Hello, World"}, "hello world.", "hello word."),
        ({"kind": "repeat", "words": "one two"}, "1 2", "one two two"),
        ({"kind": "spell", "word": "banana"}, "b, a, n, a, n, a.", "b, a, n, a, n."),
        ({"kind": "number", "value": 59}, "42 plus 17 is 59.", "42 plus 17 is 58."),
        ({"kind": "number", "value": -25}, "17 minus 42 is minus 25.", "17 minus 42 is 25."),
        ({"kind": "number", "value": 59}, "That is fifty nine.", "I don't know. 59."),
        ({"kind": "number", "value": -3174}, "40 minus 3214 is minus 3174.", "40 minus 3214 is 3174."),
        ({"kind": "number", "value": 104}, "It is one hundred four.", "It is 14."),
        ({"kind": "count", "first": 1, "last": 3}, "1, 2, 3.", "1, 2, 3, 4."),
        ({"kind": "count", "first": 3, "last": 1}, "3, 2, 1.", "1, 2, 3."),
        ({"kind": "calendar", "name": "tuesday"}, "After Monday comes Tuesday.", "After Tuesday comes Monday."),
        ({"kind": "list", "names": "monday tuesday"}, "Monday, Tuesday.", "Tuesday, Monday."),
        ({"kind": "user_name", "name": "anna"}, "Nice to meet you, Anna.", "Nice to meet you."),
        ({"kind": "tool", "result": "10:42"}, "It is 10:42.", "It is 10:43."),
        ({"kind": "time"}, "It is 10:42.", "I don't know."),
        ({"kind": "date"}, "It is Saturday, November 21, 2026.", "It is 10:42."),
        ({"kind": "refuse"}, "I don't know. Load a bigger model to ask me that.", "It is Paris."),
        ({"kind": "unheard"}, "Sorry, I didn't catch that.", "Hello!"),
        ({"kind": "greet"}, "Hello! What can I do for you?", "Goodbye!"),
        ({"kind": "see"}, "I have no picture. Turn on your camera.", "It is a cat."),
        ({"kind": "says", "text": "I see 1 red circle."}, "i see one red circle", "I see 2 red circles."),
    ],
)
def test_the_judge_has_two_verdicts(expect: dict[str, str | int], right: str, wrong: str) -> None:
    assert answers_rightly(expect, right)
    assert not answers_rightly(expect, wrong)


def test_the_judge_rejects_unknown_kinds() -> None:
    with pytest.raises(ValueError, match="knows no kind"):
        answers_rightly({"kind": "sing"}, "la la la")


def test_a_seed_draws_the_same_dialogues_in_every_process() -> None:
    """Python's sets are in another order in each: what is drawn from them was, too."""
    code = "import random; from engine.training.nano.dialogues import sample_dialogue as draw; rng = random.Random(0); "
    code += "print([draw(rng) for _ in range(200)])"
    drawn = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(drawn) == 1
