"""Decodes containers whose table fields are mutated, and reports memory, time and unexpected exceptions.

    python -m tests.app.media.fuzz_containers --count 500000 --seed 1

It exits with 1 if a file raised anything but MediaError, took more than SLOW_S of CPU time, or if the process grew by
more than MOST_MB.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import sys
import time
from dataclasses import dataclass, field

from app.media.audio import MediaError, decode_audio
from app.media.videos import decode_video
from engine import CameraFeed
from tests.app.media.boxes import fragment, mp4, track
from tests.app.media.remuxed import remuxed
from tests.app.media.test_audio import recorded
from tests.app.media.test_videos import video

SLOW_S = 1.0
MOST_MB = 100
FEED = CameraFeed(fps=2.0, side=64, most=4)
NUMBERS = (0, 1, 2, 7, 8, 0x7F, 0xFF, 0xFFFF, 0x10000, 50_000_000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
BOXES = b"moov trak mdia minf stbl stsd stts ctts stss stsc stsz stco elst moof traf trun tfhd mdhd hdlr".split()


@dataclass(slots=True)
class Findings:
    """Results of a run."""

    files: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    grown_mb: float = 0.0
    exceptions: list[str] = field(default_factory=list[str])

    @property
    def bad(self) -> bool:
        return bool(self.exceptions) or self.slowest_s > SLOW_S or self.grown_mb > MOST_MB


def originals() -> list[bytes]:
    """Return files of each container: as cameras, browsers and taggers write them, and made by hand."""
    whole = video(1.0)
    files = [whole, mp4(track(100, edits=2), rest=fragment(50))]
    for format, options in (
        ("mov", {"movflags": "frag_keyframe+empty_moov"}),
        ("matroska", {}),
        ("matroska", {"live": "1"}),
    ):
        files.append(remuxed(whole, format, options))
    return [*files, *(recorded(format, "libopus", 0.5) for format in ("ogg", "webm"))]


def mutated(file: bytes, random: random.Random) -> bytes:
    """Change one to four fields: numbers after a box's name, any 1, 2, 4 or 8 bytes, or repeated and lost pieces."""
    data = bytearray(file)
    for _ in range(random.randint(1, 4)):
        at = _place(data, random)
        match random.randrange(4):
            case 0 | 1:
                data[at : at + 4] = struct.pack(">I", random.choice(NUMBERS))
            case 2:
                data[at : at + 1] = bytes([random.randrange(256)])
            case _:
                piece = data[at : at + random.choice((4, 8, 12, 24, 100))]
                data[at : at + random.choice((0, len(piece)))] = piece * random.choice((0, 2, 50))
    return bytes(data)


def run(count: int, seed: int) -> Findings:
    """Decode ``count`` mutated files."""
    chosen = random.Random(seed)
    files = originals()
    found = Findings()
    for file in files:
        _decode(file, found)
    before = _peak_mb()
    while found.files < count:
        file = mutated(chosen.choice(files), chosen)
        begun_s = time.process_time()
        _decode(file, found)
        found.slowest_s = max(found.slowest_s, time.process_time() - begun_s)
        found.files += 1
    found.grown_mb = _peak_mb() - before
    return found


def _decode(file: bytes, found: Findings) -> None:
    for decode in (lambda: decode_audio(file, 10.0), lambda: decode_video(file, 10.0, FEED)):
        try:
            decode()
        except MediaError:
            found.refused += 1
        except Exception as error:  # noqa: BLE001 - any other one is a finding
            found.exceptions.append(f"{type(error).__name__}: {error}"[:200])


def _place(data: bytearray, random: random.Random) -> int:
    """Return a position within the fields of a box, or anywhere."""
    if random.random() < 0.7 and (at := data.find(random.choice(BOXES))) > 0:
        return at - 4 + random.choice((0, 4, 8, 12, 16, 20, 24))
    return random.randrange(max(1, min(len(data), 2_000)))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found = run(arguments.count, arguments.seed)
    print(
        f"{found.files} files, {found.refused} refusals, slowest {found.slowest_s:.2f} s of CPU time, "
        f"{found.grown_mb:.0f} MB more memory, {len(found.exceptions)} exceptions {found.exceptions[:5]}"
    )
    return int(found.bad)


if __name__ == "__main__":
    sys.exit(main())
