"""The teacher slt: Festival reads the text, hts_engine speaks it. Uses the same protocol as teacher.c:

    python -m engine.training.nano.hts DIR < lines

Reads `id<TAB>spoken text` lines. For each it writes DIR/id.s16 (16 kHz mono, int16), DIR/id.s32 (the same at 32 kHz,
the voice's native rate) and DIR/id.f0 (float32, Hz, one value every 5 ms, 0 where unvoiced), then prints `id<TAB>spoken
text<TAB>phone:end_s phone:end_s ...`. Needs Debian's festival, festvox-us-slt-hts and htsengine.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.signal import resample_poly

VOICE = Path("/usr/share/festival/voices/us/cmu_us_slt_arctic_hts/hts/cmu_us_slt_arctic_hts.htsvoice")
BATCH = 50  # lines per Festival process
LABEL_S = 1e-7  # unit of times in label files (HTK Book, 6.2.1)
# Festival's own steps of `utt.synth` up to the wave; then the full-context labels that hts_engine eats.
SCRIPT = """(voice_cmu_us_slt_arctic_hts)
(defSynthType HTS utt)
(define (label name text)
  (hts_dump_feats (utt.synth (eval (list 'Utterance 'Text text))) hts_feats_list name))
"""


def main() -> None:
    folder = Path(sys.argv[1])
    while lines := list(islice(sys.stdin, BATCH)):
        pairs = [tuple(line.rstrip("\n").split("\t", 1)) for line in lines]
        for row in speak(folder, pairs):
            sys.stdout.write(row)
            sys.stdout.flush()


def speak(folder: Path, pairs: Iterable[tuple[str, ...]]) -> Iterable[str]:
    """Yield table rows for (id, spoken text) pairs as their files are written."""
    with TemporaryDirectory() as labels:
        calls = "".join(f'(label "{labels}/{name}.lab" "{text}")\n' for name, text in pairs)
        script = Path(labels, "read.scm")
        script.write_text(SCRIPT + calls)
        subprocess.run(["festival", "-b", str(script)], check=True, capture_output=True)
        for name, text in pairs:
            marks = voice(folder, name, Path(labels, f"{name}.lab"))
            yield f"{name}\t{text}\t{marks} \n"


def voice(folder: Path, name: str, label: Path) -> str:
    """Speak one label file, and return its phones with their end times."""
    raw, log_f0, times = (label.with_suffix(suffix) for suffix in (".raw", ".lf0", ".dur"))
    command = ["hts_engine", "-m", VOICE, "-or", raw, "-of", log_f0, "-od", times, label]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    wave = np.fromfile(raw, np.int16)
    wave.astype("<i2").tofile(folder / f"{name}.s32")
    half = resample_poly(wave.astype(np.float32), 1, 2)
    half.round().clip(-32768, 32767).astype("<i2").tofile(folder / f"{name}.s16")
    logs = np.fromfile(log_f0, np.float32)
    np.where(logs > 0, np.exp(logs), 0).astype("<f4").tofile(folder / f"{name}.f0")
    return " ".join(mark(line) for line in times.read_text().splitlines())


def mark(line: str) -> str:
    """Convert `begin end full-context label` to `phone:end_s`; the phone is between - and + in the label."""
    _, end, label = line.split(None, 2)
    phone = re.search(r"-([a-z]+)\+", label)
    assert phone, label
    return f"{phone[1]}:{float(end) * LABEL_S:.4f}"


if __name__ == "__main__":
    main()
