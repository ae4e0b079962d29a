"""Let the teacher read the corpus. Restartable: an utterance that is already on disk is not spoken again.

    python -m engine.training.nano.teach --work DIR --jobs 2

Builds DIR/teacher, writes DIR/speech/*.s16, *.f0 and the tables DIR/speech.*.tsv.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("teacher.c")
LIBRARIES = ["-lflite_cmu_us_rms", "-lflite_usenglish", "-lflite_cmulex", "-lflite", "-lm"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    teacher = program(args.work)
    (args.work / "speech").mkdir(exist_ok=True)
    done = {line.split("\t", 1)[0] for path in args.work.glob("speech.*.tsv") for line in path.read_text().splitlines()}
    lines = [
        line
        for line in (args.work / "corpus.tsv").read_text().splitlines(keepends=True)
        if line.split("\t", 1)[0] not in done
    ]
    running = [start(teacher, args.work, job, lines[job :: args.jobs]) for job in range(args.jobs)]
    for process in running:
        process.wait()


def program(work: Path) -> Path:
    """The teacher, compiled against the system's libflite (Debian: flite1-dev) where it is not there yet."""
    found = work / "teacher"
    if not found.exists():
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-O2", "-o", str(found), str(SOURCE), *LIBRARIES], check=True)
    return found


def start(program: Path, work: Path, job: int, lines: list[str]) -> subprocess.Popen[bytes]:
    todo = work / f"todo.{job}.tsv"
    todo.write_text("".join(lines))
    with todo.open() as text, (work / f"speech.{job}.tsv").open("a") as table:
        return subprocess.Popen(["nice", str(program), str(work / "speech")], stdin=text, stdout=table)


if __name__ == "__main__":
    main()
