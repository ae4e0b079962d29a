"""The processor's seconds that a worker of each family takes until it is ready, on tiny random checkpoints.

    python -m benchmarks.starts [--rounds 5] [--only cloned,designed,qwen2_5_omni,qwen3_omni] [--against FOLDER]

A start is all that a worker's process does: imports, tokenizer, networks, warm-up. The weights are so small that
reading them is nothing, so this is what every further replica, every restart and every test pays. ``--against`` is
another checkout of this repository: each round then starts the same checkpoint once with either, one after the other,
with this environment's packages. The table shows the median of the rounds and their range.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.families import CONFIGS, FAMILIES

HERE = Path(__file__).parents[1]
START = """
import asyncio, json, resource, sys, time
from engine import Engine, load_config

async def main():
    began = time.monotonic()
    async with Engine(load_config(sys.argv[1])):
        ready_s = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps([used.ru_utime + used.ru_stime, ready_s]))

asyncio.run(main())
"""
"""A server's part, in a process of its own: its one child is the worker."""


def write(name: str, folder: Path) -> Path:
    """Make a family's checkpoint and a configuration of it, whose worker is a process."""
    config, options = FAMILIES[name](folder)
    tree: dict[str, Any] = yaml.safe_load((CONFIGS / f"{config}.yaml").read_text(encoding="utf-8"))
    tree |= {"weights": str(folder / "weights"), "options": tree.get("options", {}) | options}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def start(config: Path, checkout: Path) -> tuple[float, float]:
    """Return the processor's seconds of a worker, and the seconds until it was ready."""
    command = [sys.executable, "-P", "-c", START, str(config)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}  # the worker's process, too, is this checkout's
    made = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    used_s, ready_s = json.loads(made.stdout)
    return used_s, ready_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(FAMILIES), help="which of them, with commas between")
    parser.add_argument("--against", type=Path, help="another checkout of this repository")
    args = parser.parse_args()
    checkouts = {"another": args.against.resolve()} if args.against else {}
    checkouts |= {"this": HERE}
    table = Table("family", "checkout", "processor, s", "until ready, s")
    for name in args.only.split(","):
        with tempfile.TemporaryDirectory() as made:
            config = write(name, Path(made))
            found: dict[str, list[tuple[float, float]]] = {one: [] for one in checkouts}
            for _ in range(args.rounds):
                for one, checkout in checkouts.items():
                    found[one].append(start(config, checkout))
        for one, starts in found.items():
            table.add_row(name, one, *(_range(values) for values in zip(*starts, strict=True)))
    Console(width=120).print(table)
    return 0


def _range(values: tuple[float, ...]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    sys.exit(main())
