"""Speech of many voices, to train the network that separates speech from noise, from Debian's free synthesizers.

    python -m engine.training.nano.crowd --work DIR [--count 160] [--voices ked,nsh]

For each voice it writes DIR/crowd/VOICE.npz: ``pcm`` (int16 at MIC_RATE_HZ, concatenated utterances) and ``ends`` (the
end of each in samples). Existing voices are skipped. Needs Debian's ``flite`` and ``festival`` and the voices'
packages. The three voices of the evaluation (`make_spoken`) are excluded. The content need not make sense: an Italian
voice reading English produces Italian sounds.
"""

from __future__ import annotations

import argparse
import random
import subprocess
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from engine.core import MIC_RATE_HZ, Pcm
from engine.training.nano.assistant import assistant_turn
from engine.training.nano.corpus import evaluated, unseen
from engine.training.nano.make_spoken import levelled

BATCH = 20  # lines per process
CYRILLIC = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопкрстуввкиз")


@dataclass(frozen=True, slots=True)
class Speaker:
    """A synthesizer's voice: its name in Festival or Flite, and its Debian package."""

    call: str
    package: str
    flite: bool = False
    cyrillic: bool = False


SPEAKERS = {
    "rms": Speaker("rms", "flite", flite=True),
    "ked": Speaker("voice_ked_diphone", "festvox-kdlpc16k"),
    "nsh": Speaker("voice_msu_ru_nsh_clunits", "festvox-ru", cyrillic=True),
    "ona": Speaker("voice_upc_ca_ona_hts", "festvox-ca-ona-hts"),
    "lj": Speaker("voice_suo_fi_lj_diphone", "festvox-suopuhe-lj"),
    "mv": Speaker("voice_hy_fi_mv_diphone", "festvox-suopuhe-mv"),
    "lp": Speaker("voice_lp_diphone", "festvox-italp16k"),
    "pc": Speaker("voice_pc_diphone", "festvox-itapc16k"),
    "dita": Speaker("voice_czech_dita", "festvox-czech-dita"),
    "krb": Speaker("voice_czech_krb", "festvox-czech-krb"),
    "machac": Speaker("voice_czech_machac", "festvox-czech-machac"),
    "ph": Speaker("voice_czech_ph", "festvox-czech-ph"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--count", type=int, default=160, help="sentences per voice")
    parser.add_argument("--voices", default=",".join(SPEAKERS))
    args = parser.parse_args()
    home = args.work / "crowd"
    home.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(args.voices.split(",")):
        if (home / f"{name}.npz").exists():
            continue
        waves = spoken(SPEAKERS[name], texts(args.count, seed))
        np.savez(home / f"{name}.npz", pcm=np.concatenate(waves), ends=np.cumsum([len(wave) for wave in waves]))
        print(f"{name}: {len(waves)} utterances, {sum(map(len, waves)) / MIC_RATE_HZ / 60:.1f} min", flush=True)


def texts(count: int, seed: int) -> list[str]:
    """Return sentences that occur in no evaluation, without quotes."""
    rng = random.Random(seed)
    lines = (assistant_turn(rng).replace('"', "") for _ in iter(int, 1))
    return list(islice(unseen(lines, evaluated()), count))


def spoken(speaker: Speaker, lines: list[str]) -> list[Pcm]:
    """Synthesize the lines, one array per line; unreadable lines are left out."""
    waves = []
    for at in range(0, len(lines), BATCH):
        with TemporaryDirectory() as folder:
            (by_flite if speaker.flite else by_festival)(speaker, lines[at : at + BATCH], Path(folder))
            waves += [wave for path in sorted(Path(folder).glob("*.wav")) if (wave := pcm_of(path)).any()]
    return waves


def by_flite(speaker: Speaker, lines: list[str], folder: Path) -> None:
    for number, line in enumerate(lines):
        command = ["flite", "-voice", speaker.call, "-t", line, "-o", str(folder / f"{number:03}.wav")]
        subprocess.run(command, check=True)


def by_festival(speaker: Speaker, lines: list[str], folder: Path) -> None:
    script = folder / "read.scm"
    said = (line.lower().translate(CYRILLIC) if speaker.cyrillic else line for line in lines)
    save = '(unwind-protect (utt.save.wave (utt.synth (eval (list \'Utterance \'Text "{}"))) "{}" \'riff))\n'
    calls = "".join(save.format(line, folder / f"{number:03}.wav") for number, line in enumerate(said))
    script.write_text(f"({speaker.call})\n{calls}")
    subprocess.run(["festival", "-b", str(script)], check=False, capture_output=True, timeout=300)


def pcm_of(path: Path) -> Pcm:
    """Return a file's audio, levelled as in `make_spoken`."""
    return (levelled(path) * 32767).astype(np.int16)


if __name__ == "__main__":
    main()
