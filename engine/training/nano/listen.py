"""Builds one HTML page to compare voices by ear: the teacher, the codec alone, and nano from text, with spectrograms.

    python -m engine.training.nano.listen --work DIR --out DIR [--voices rms slt] [--weights new=FOLDER old=FOLDER …]

Writes OUT/listen.html with all sounds (WAV) and spectrograms (0 to 8 kHz, 80 dB, PNG) inside; --count sets the number
of sentences.
"""

from __future__ import annotations

import argparse
import base64
import html
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from engine.training.nano import buzz, meter
from engine.training.nano.export import codec_of, read_voice
from engine.training.nano.speak import Voice
from engine.training.nano.utterances import Utterance
from engine.worker.models.nano.voice import VOICES

RATE_HZ = 16000
RANGE_DB = 80.0
STYLE = "td,th{padding:6px;font:14px sans-serif;vertical-align:top}td:first-child{width:12em}img{width:22em;height:9em}"
Wave = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--weights", nargs="+", default=[f"nano={buzz.WEIGHTS}"], metavar="NAME=FOLDER")
    parser.add_argument("--voices", nargs="+", choices=VOICES, default=VOICES)
    parser.add_argument("--count", type=int, default=10)
    args = parser.parse_args()
    texts = buzz.texts()
    chosen = range(0, len(texts), max(1, len(texts) // args.count))
    columns: dict[str, list[Wave]] = {}
    for voice in args.voices:
        recorded = buzz.recordings(args.work, voice)
        columns[f"{voice}: teacher"] = [recorded[index][0] for index in chosen]
        for given in args.weights:
            name, _, folder = given.partition("=")
            speaker, utterances = Voice(Path(folder), voice), [recorded[index][1] for index in chosen]
            columns |= spoken(name, speaker, Path(folder), [texts[index] for index in chosen], utterances)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "listen.html").write_text(page([texts[index] for index in chosen], columns))
    print(args.out / "listen.html")


def spoken(
    name: str, voice: Voice, weights: Path, texts: list[str], utterances: list[Utterance]
) -> dict[str, list[Wave]]:
    """Return two columns for one voice and one set of weights: the teacher through the codec, and nano from text."""
    codec = codec_of(read_voice(weights)[1], VOICES.index(voice.name))
    return {
        f"{voice.name}, {name}: codec": [buzz.resynthesise(voice, codec, utterance) for utterance in utterances],
        f"{voice.name}, {name}: from text": meter.nano_waves(weights, texts, voice.name),
    }


def page(texts: list[str], columns: dict[str, list[Wave]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    rows = ""
    for row, text in enumerate(texts):
        cells = "".join(f"<td>{cell(waves[row])}</td>" for waves in columns.values())
        rows += f"<tr><td>{html.escape(text)}</td>{cells}</tr>\n"
    start = f"<!doctype html><meta charset=utf-8><title>nano</title><style>{STYLE}</style>\n"
    return f"{start}<table><tr><th></th>{head}</tr>\n{rows}</table>\n"


def cell(wave: Wave) -> str:
    picture, sound = base64.b64encode(spectrogram(wave)).decode(), base64.b64encode(wav(wave)).decode()
    return (
        f'<img src="data:image/png;base64,{picture}"><br><audio controls src="data:audio/wav;base64,{sound}"></audio>'
    )


def wav(wave: Wave) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, wave, RATE_HZ, format="WAV", subtype="PCM_16")
    return file.getvalue()


def spectrogram(wave: Wave) -> bytes:
    """Return a PNG: time to the right in steps of 4 ms, frequency upwards, dark is loud."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(wave, 256), 512)[::64] * np.hanning(512)
    level_db = 20 * np.log10(np.abs(np.fft.rfft(windows, axis=1)) + 1e-6)
    shade = np.clip((level_db.max() - level_db) / RANGE_DB, 0, 1)
    return png((255 * shade.T[::-1]).astype(np.uint8))


def png(grey: NDArray[np.uint8]) -> bytes:
    """[height, width] -> a PNG file (W3C PNG, third edition: IHDR, IDAT, IEND), rows unfiltered."""
    rows = np.pad(grey, ((0, 0), (1, 0))).tobytes()
    header = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    out = b"\x89PNG\r\n\x1a\n"
    for kind, data in chunks:
        out += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return out


if __name__ == "__main__":
    main()
