"""Run `benchmarks.serve` for each native family, with tiny random checkpoints.

    python -m benchmarks.families [--only named,cloned,designed,qwen2_5_omni,qwen3_omni]
        [--at-once 1,8] [--answers N] [--replicas 1,2]

named          Qwen3-TTS CustomVoice, with its first speaker
cloned         Qwen3-TTS Base, with a cloned recording
designed       Qwen3-TTS VoiceDesign, with a described voice
qwen2_5_omni   text in, text and speech out
qwen3_omni     the same

Every answer is compared with the audio of the same request alone. The families' tests compare it with the reference.
Random weights rarely stop, so answers have the maximum length, and the load does not predict that of real weights.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from app.bench.subject import Served
from benchmarks import program
from benchmarks.loads import Plan
from benchmarks.serve import Servers, run_serve
from engine import load_config
from tests.oracles import tiny_qwen2_5_omni, tiny_qwen3_omni, tiny_qwen3_tts
from tests.oracles.qwen3_tts import WORDS, write_recording

CONFIGS = Path(__file__).parents[1] / "configs"
print_ = Console(width=120, highlight=False).print


def named(folder: Path) -> tuple[str, Mapping[str, Any]]:
    tiny_qwen3_tts.make(folder / "weights", tiny_qwen3_tts.Sizes(kind="custom_voice"))
    return "qwen3_tts_tiny", {}


def cloned(folder: Path) -> tuple[str, Mapping[str, Any]]:
    recording = write_recording(folder / "anna.wav", 3.5)
    clone = {"name": "anna", "reference": str(recording), "text": WORDS, "consent": "A benchmark's own sound."}
    tiny_qwen3_tts.make(folder / "weights", tiny_qwen3_tts.Sizes(kind="base"))
    return "qwen3_tts_tiny", {"clones": [clone]}


def designed(folder: Path) -> tuple[str, Mapping[str, Any]]:
    tiny_qwen3_tts.make(folder / "weights", tiny_qwen3_tts.Sizes(kind="voice_design"))
    return "qwen3_tts_tiny", {"designs": [{"name": "narrator", "instruct": "A calm, low voice of an old man."}]}


def qwen2_5_omni(folder: Path) -> tuple[str, Mapping[str, Any]]:
    tiny_qwen2_5_omni.make(folder / "weights")
    return "qwen2_5_omni_tiny", {}


def qwen3_omni(folder: Path) -> tuple[str, Mapping[str, Any]]:
    tiny_qwen3_omni.make(folder / "weights")
    return "qwen3_omni_tiny", {}


FAMILIES = {one.__name__: one for one in (named, cloned, designed, qwen2_5_omni, qwen3_omni)}


def written(name: str, folder: Path) -> Path:
    """Write a tiny checkpoint of a family and its configuration into the folder. Returns the configuration."""
    config, options = FAMILIES[name](folder)
    tree = yaml.safe_load((CONFIGS / f"{config}.yaml").read_text(encoding="utf-8"))
    tree |= {"weights": str(folder / "weights"), "options": tree.get("options", {}) | options}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def measure(name: str, plan: Plan, replicas: tuple[int, ...]) -> bool:
    """Serve a tiny checkpoint under load. Returns whether all bars were met."""
    with tempfile.TemporaryDirectory() as folder:
        path = written(name, Path(folder))
        print_(f"\n{name}")
        return run_serve(Servers(load_config(path), Served(str(path)), replicas), plan, None)


def main() -> int:
    parser = program.parser(__doc__)
    parser.add_argument("--only", default=",".join(FAMILIES), help="which of them, with commas between")
    parser.add_argument(
        "--at-once", type=program.numbers, default="1,8", help="users who ask at once, with commas between"
    )
    parser.add_argument("--answers", type=int, help="answers of each load")
    parser.add_argument(
        "--replicas", type=program.numbers, default="1", help="replicas of each worker, with commas between"
    )
    args = parser.parse_args()
    plan = Plan(at_once=args.at_once, count=args.answers)
    held = [measure(name, plan, args.replicas) for name in args.only.split(",")]
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
