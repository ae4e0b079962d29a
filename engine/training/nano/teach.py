"""Let a voice's teacher read its corpus. Restartable: existing utterances are not spoken again.

    python -m engine.training.nano.teach --work DIR --voice rms --jobs 2

In DIR/VOICE, it compiles the teacher if needed, reads corpus.tsv, and writes speech/*.s16, *.f0 and the tables
speech.*.tsv.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from engine.worker.models.nano.voice import VOICES

SOURCE = Path(__file__).with_name("teacher.c")
FLITE = {"rms": "cmu_us_rms", "awb": "cmu_us_awb"}
"""Voices that Flite speaks; the others are spoken by `hts`."""
LIBRARIES = ["-lflite_usenglish", "-lflite_cmulex", "-lflite", "-lm"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--voice", choices=VOICES, default=VOICES[0])
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    teacher, home = program(args.work, args.voice), args.work / args.voice
    (home / "speech").mkdir(exist_ok=True)
    done = {line.split("\t", 1)[0] for path in home.glob("speech.*.tsv") for line in path.read_text().splitlines()}
    lines = [
        line
        for line in (home / "corpus.tsv").read_text().splitlines(keepends=True)
        if line.split("\t", 1)[0] not in done
    ]
    running = [start(teacher, home, job, lines[job :: args.jobs]) for job in range(args.jobs)]
    for process in running:
        process.wait()


def program(work: Path, voice: str) -> list[str]:
    """Return the command that speaks lines; Flite's is compiled against the system's libflite (Debian: flite1-dev) if
    missing.
    """
    if voice not in FLITE:
        return [sys.executable, "-m", "engine.training.nano.hts"]
    found, name = work / voice / "teacher", FLITE[voice]
    if not found.exists():
        found.parent.mkdir(parents=True, exist_ok=True)
        own = [f"-DVOICE=register_{name}", str(SOURCE), f"-lflite_{name}"]
        subprocess.run(["cc", "-O2", "-o", str(found), *own, *LIBRARIES], check=True)
    return [str(found)]


def start(program: list[str], home: Path, job: int, lines: list[str]) -> subprocess.Popen[bytes]:
    todo = home / f"todo.{job}.tsv"
    todo.write_text("".join(lines))
    with todo.open() as text, (home / f"speech.{job}.tsv").open("a") as table:
        return subprocess.Popen(["nice", *program, str(home / "speech")], stdin=text, stdout=table)


if __name__ == "__main__":
    main()
