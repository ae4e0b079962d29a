"""Speaks the evaluation sets of speech recognition with the teacher's other voices, in compressed files.

    python -m engine.training.nano.make_spoken                      # the evaluation recordings -> tests/data/spoken
    python -m engine.training.nano.make_spoken --dev DIR            # other sentences, for tuning -> DIR

Needs ``flite`` (and ``espeak-ng`` for the stress voice of --dev). The voices are kal16, awb and slt, in turn; never
rms, whose speech trained the model's own voice. Writes Ogg Opus at 16 kHz and ``index.json``, a list of ``file``,
``text``, ``voice`` and ``expect`` (the right answer, or null for speech that must be refused).
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from engine.training.nano.dialogues import (
    EVAL,
    Request,
    allowed,
    expand,
    read_requests,
    sample_request,
)
from engine.training.nano.lexicon import FIGURES, PLACES, THINGS, TOPICS, number_words
from engine.training.nano.templates import REFUSED

RATE_HZ = 16_000
VOICES = ("slt", "awb", "kal16")
OUT = Path(__file__).parents[3] / "tests" / "data" / "spoken"
COMPRESSION = 0.9  # libsndfile's setting for Opus: about 20 kbit/s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dev", type=Path, help="write a development set to this folder instead")
    parser.add_argument("--count", type=int, default=240, help="number of in-domain requests in the development set")
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    if args.dev:
        store(development(random.Random(args.seed), args.count), args.dev, (*VOICES, "espeak"))
    else:
        store(evaluation(), OUT, VOICES)


def evaluation() -> Iterator[tuple[Request, bool]]:
    """Yield every request of the committed sets, and whether it is in the domain."""
    for request in read_requests(EVAL / "spoken_in_domain.jsonl"):
        yield request, True
    for request in read_requests(EVAL / "spoken_out_of_domain.txt"):
        yield request, False


def development(rng: random.Random, count: int) -> Iterator[tuple[Request, bool]]:
    """Yield other in-domain requests, and other sentences to refuse: frames beyond the domain and plain statements."""
    for _ in range(count):
        yield sample_request(rng), True
    for i in range(count):
        text = STATEMENTS[i] if i < len(STATEMENTS) else beyond(rng)
        request = Request(text, {"kind": "refuse"})
        if allowed(request):
            yield request, False


def beyond(rng: random.Random) -> str:
    """Return a sentence about something that nano cannot do."""
    text = expand(rng, rng.choice(REFUSED))
    for slot, values in {"topic": TOPICS, "place": PLACES, "person": FIGURES, "thing": THINGS}.items():
        text = text.replace("{" + slot + "}", rng.choice(values).strip())
    text = text.replace("{big}", number_words(rng.randint(100, 999))).replace("{a}", number_words(rng.randint(1, 99)))
    return text if len(text.split()) > 1 else beyond(rng)


def store(requests: Iterator[tuple[Request, bool]], folder: Path, voices: tuple[str, ...]) -> None:
    """Speak each request with the next voice, and write the recordings and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for number, (request, inside) in enumerate(requests):
        voice = voices[number % len(voices)]
        name = f"{'in' if inside else 'out'}_{number:03}.ogg"
        write_opus(folder / name, speak(request.text, voice))
        index.append({"file": name, "text": request.text, "voice": voice, "expect": request.expect if inside else None})
    (folder / "index.json").write_text(json.dumps(index, indent=0) + "\n")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{len(index)} recordings, {size / 1e6:.2f} MB -> {folder}")


def speak(text: str, voice: str) -> NDArray[np.float32]:
    """Return the spoken text as float32 [n] at RATE_HZ, with a peak of 0.5."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "speech.wav"
        if voice == "espeak":
            subprocess.run(["espeak-ng", "-v", "en-us", "-w", path, text], check=True)
        else:
            subprocess.run(["flite", "-voice", voice, "-t", text, "-o", path], check=True)
        return levelled(path)


def levelled(path: Path) -> NDArray[np.float32]:
    """Read a sound file as float32 [n] at RATE_HZ, scaled to a peak of 0.5."""
    wave, rate_hz = soundfile.read(path, dtype="float32")
    if rate_hz != RATE_HZ:
        from scipy.signal import resample_poly

        factor = int(np.gcd(rate_hz, RATE_HZ))
        wave = resample_poly(wave, RATE_HZ // factor, rate_hz // factor)
    return (wave * (0.5 / max(1e-3, float(np.abs(wave).max(initial=0))))).astype(np.float32)


def write_opus(path: Path, wave: NDArray[np.float32]) -> None:
    with soundfile.SoundFile(
        path, "w", RATE_HZ, 1, format="OGG", subtype="OPUS", compression_level=COMPRESSION
    ) as file:
        file.write(wave)


STATEMENTS = """
my uncle bought a farm near the border last spring
the children built a castle out of sand
every summer we go camping with our cousins
the new bridge will open to traffic in november
nobody knew where the old man had gone
she opened the window because it was too hot
two workers were injured in the accident
i would rather stay at home and read
the train to the coast was delayed again
the museum shows paintings from three centuries
he forgot to lock the door of his apartment
could you check the tires before we leave
why is the milk always at the back of the store
they say the hotel was built on a swamp
please put the dishes into the cupboard
how much does it cost to repair a broken screen
the minister answered none of the questions
our team lost the last four games
the farmer sold his horses to a circus
wolves have returned to the forests of the north
my sister is learning to play the violin
who is going to pay for the damage
the soup needs a little more salt
his theory was rejected by most experts
when does the library close on fridays
the ship sank within twenty minutes
i have been waiting for the doctor since noon
some birds sleep while they are flying
a thick fog covered the whole valley
are there any tickets left for the concert
the company fired half of its employees
turn down the heating in the bedroom
i think the battery of my car is dead
what happened to the boy who found the treasure
the judge sentenced him to five years in prison
we should plant some tomatoes this year
can you recommend a good dentist in this area
the roof of the church was destroyed by lightning
most of the guests left before midnight
is it true that sharks never sleep
""".strip().splitlines()  # fmt: skip


if __name__ == "__main__":
    main()
