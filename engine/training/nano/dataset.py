"""Training data from the teacher's files: utterances with aligned letters, the pronunciation lexicon, packed tensors.

    python -m engine.training.nano.dataset lexicon --work DIR
    python -m engine.training.nano.dataset pack --work DIR --waves 3000

`lexicon` writes lexicon.pt (the first teacher's phones of every dictionary word) and aligner.pt. `pack` writes talk.pt
(letters, times and codes of all utterances of all voices) and waves.pt (features and samples of a subset).
"""

from __future__ import annotations

import argparse
import subprocess
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.training.nano import teach
from engine.training.nano.align import PHONE_INDEX, Aligner, letter_ends, letters
from engine.training.nano.codec import Codec, path
from engine.training.nano.utterances import Utterance, parse, utterances
from engine.worker.models.nano.voice import VOICES

HELD_OUT = 64  # first utterances of each voice, used only to print losses


def lexicon(work: Path, count: int) -> None:
    """Pronounce the dictionary with the first teacher, fit the aligner, and keep the words that align.

    lexicon.pt is a list of (letters, [(phone + 1 or 0, phone + 1 or 0) for each letter]), frequent words first.
    """
    from engine.training.nano.corpus import Bigrams, dictionary

    frequency = Bigrams.bundled(work).unigram
    words = sorted(dictionary(), key=lambda word: (-frequency.get(word, -9.0), word))[:count]
    lines = "".join(f"{word}\t{word}.\n" for word in words)
    command = [*teach.program(work, VOICES[0]), "-"]
    spoken = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout
    pairs = []
    for utterance in (parse(VOICES[0], work, line) for line in spoken.splitlines()):
        phones = [PHONE_INDEX[phone] for phone in utterance.phones if phone != "pau"]
        pairs.append((letters(utterance.name)[1:], phones))
    aligner = Aligner()
    aligner.fit(pairs[:15000])
    aligned = [(ids, aligner.align(ids, phones)) for ids, phones in pairs]
    kept = [(ids, labels(path)) for ids, path in aligned if path]
    print(f"lexicon: {len(kept)} of {len(words)} words", flush=True)
    torch.save(kept, work / "lexicon.pt")
    torch.save((aligner.emission, aligner.count), work / "aligner.pt")


def labels(path: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Return two classes per letter: 0 for no phone, else phone + 1."""
    return [(spoken[0] + 1 if spoken else 0, spoken[1] + 1 if len(spoken) > 1 else 0) for spoken in path]


def pack(work: Path, waves: int, jobs: int) -> None:
    rows: list[dict[str, Any]] = []
    for voice in VOICES:
        chosen = utterances(work, voice)
        step = max(1, len(chosen) // waves)
        every = [(utterance, index % step == 0) for index, utterance in enumerate(chosen)]
        with ProcessPoolExecutor(jobs, initializer=partial(torch.set_num_threads, 1)) as pool:
            packed = [row for row in pool.map(partial(_pack_one, work), every, chunksize=64) if row]
        hours = sum(len(row["codes"]) for row in packed) / 90000
        print(f"{voice}: packed {len(packed)} of {len(chosen)} utterances, {hours:.1f} h", flush=True)
        rows += packed
    talk = ("voice", "name", "text", "letters", "labels", "ends_s", "codes", "latent")
    torch.save(
        [
            {key: torch.from_numpy(row[key]) if isinstance(row[key], np.ndarray) else row[key] for key in talk}
            for row in rows
        ],
        work / "talk.pt",
    )
    wave = ("voice", "name", "text", "codes", "wave", "mel", "log_f0", "voiced")
    torch.save(
        [
            {key: torch.from_numpy(row[key]) if isinstance(row[key], np.ndarray) else row[key] for key in wave}
            for row in rows
            if "wave" in row
        ],
        work / "waves.pt",
    )


def _pack_one(work: Path, item: tuple[Utterance, bool]) -> dict[str, Any] | None:
    """Return numpy arrays instead of tensors, because each tensor would hold a file descriptor between processes."""
    utterance, with_wave = item
    codec, aligner = _tools(work, utterance.voice)
    aligned = align(aligner, utterance)
    if aligned is None:
        return None
    speech = utterance.speech()
    latent = codec.latent(speech)
    ids, classes, ends_s = aligned
    row: dict[str, object] = {
        "voice": VOICES.index(utterance.voice),
        "name": utterance.name,
        "text": utterance.text,
        "letters": np.array(ids, np.int64),
        "labels": np.array(classes, np.int64),
        "ends_s": np.maximum(0, np.array(ends_s, np.float32) - speech.cut_s),
        "codes": codec.quantise(latent).numpy().astype(np.int16),
        "latent": latent.numpy().astype(np.float16),
    }
    if with_wave:
        row |= {"wave": speech.wave.numpy(), "mel": speech.mel.numpy().astype(np.float16)}
        row |= {"log_f0": speech.log_f0.numpy(), "voiced": speech.voiced.numpy()}
    return row


def align(aligner: Aligner, utterance: Utterance) -> tuple[list[int], list[tuple[int, int]], list[float]] | None:
    """Return (letters, classes, end times), or None if text and phones do not match."""
    ids = letters(utterance.text)
    path = aligner.align(ids, [PHONE_INDEX[phone] for phone in utterance.phones])
    return (ids, labels(path), letter_ends(path, utterance.ends_s)) if path else None


@cache
def _tools(work: Path, voice: str):
    """Return codec and aligner, loaded once per process."""
    aligner = Aligner()
    aligner.emission, aligner.count = torch.load(work / "aligner.pt", weights_only=False)
    return Codec.load(path(work, voice)), aligner


def by_voice(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the rows of the data as one list per voice."""
    return [[row for row in rows if int(row["voice"]) == index] for index in range(len(VOICES))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("lexicon", "pack"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--waves", type=int, default=4000, help="utterances of each voice")
    parser.add_argument("--words", type=int, default=200_000, help="number of dictionary words, frequent ones first")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "lexicon":
        lexicon(args.work, args.words)
    else:
        pack(args.work, args.waves, args.jobs)


if __name__ == "__main__":
    main()
