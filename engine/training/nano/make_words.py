"""Writes the words that are tokens of the thinker: ``python -m engine.training.nano.make_words``.

``engine/worker/models/nano/words.txt`` has the words of calls first, then the words of users in templates that are most
frequent in sampled dialogues. All other words are spelled. Weights only work with the list that they were trained with.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from pathlib import Path

from engine.training.nano.dialogues import stream
from engine.worker.models.nano import own, tokens
from engine.worker.models.nano.plain import normalise
from engine.worker.models.nano.scene import COLOURS, SHAPES
from engine.worker.models.nano.seeing import ABOUT, COMPARED
from engine.worker.models.nano.skills import SKILLS

CALLS = (
    *own.TOOLS, *ABOUT, *COMPARED, *own.FACTS, *(skill.name for skill in SKILLS),
    *(f"{slot}=" for skill in SKILLS for slot in skill.slots), *COLOURS, *SHAPES,
    "it", "plus", "minus", "times", "swap", "after", "before", "down", "up", "on", "off",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=1400)
    parser.add_argument("--conversations", type=int, default=40_000)
    args = parser.parse_args()
    counted: Counter[str] = Counter()
    for dialogue in itertools.islice(stream(4), args.conversations):
        for turn in dialogue:
            counted.update(map(tokens.folded, normalise(turn.request.text).split()))
    common = [word for word, _ in counted.most_common() if word and not word.isdigit() and word.isascii()]
    chosen = list(dict.fromkeys((*CALLS, *common)))[: args.words]
    Path(tokens.__file__).with_name("words.txt").write_text("\n".join(chosen) + "\n")


if __name__ == "__main__":
    main()
