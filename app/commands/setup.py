"""`parley setup`: recommend a configuration for this machine, with the command that starts it. Uses no network."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from app.commands.deployment import configurations
from app.commands.doctor import free_memory
from app.commands.starter import STARTER, missing_of
from engine.deployment.installation import install_command, is_clone

ASK_GPU = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
ASK_GPU_S = 10.0
OMNI = "Qwen/Qwen3-Omni-30B-A3B-Instruct"
OMNI_MB = 70_000


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of a machine that decide what it can run."""

    cores: int
    memory_gb: float
    """Free memory in 10^9 bytes."""
    gpus_gib: tuple[float, ...] = ()
    """Memory of each NVIDIA GPU in 2^30 bytes."""

    def __str__(self) -> str:
        gpus = " and ".join(f"a GPU of {size:.0f} GiB" for size in self.gpus_gib) or "no NVIDIA GPU"
        return f"{self.cores} core{'s' * (self.cores > 1)}, {self.memory_gb:.1f} GB of free memory, {gpus}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A configuration and its minimum machine."""

    config: str
    what: str
    cores: int = 1
    memory_gb: float = 0.0
    gpus: int = 0
    gpu_gib: float = 0.0
    """Memory of each GPU in GiB. Cards have a little less than their name says."""
    bits: int = 0
    """Bits to which Qwen3-Omni is quantized before the first start; 16: taken from the hub unchanged; 0: not
    Qwen3-Omni.
    """

    def fits(self, machine: Machine) -> bool:
        large_gpus = sum(size >= self.gpu_gib for size in machine.gpus_gib)
        return machine.cores >= self.cores and machine.memory_gb >= self.memory_gb and large_gpus >= self.gpus


TIERS = (
    Tier(config="qwen3_omni_1gpu", what="Qwen3-Omni for 64 users", memory_gb=16, gpus=1, gpu_gib=93, bits=16),
    Tier(config="qwen3_omni_2gpu", what="Qwen3-Omni on two GPUs", memory_gb=16, gpus=2, gpu_gib=78, bits=16),
    Tier(config="qwen3_omni_80gb", what="Qwen3-Omni for 24 users", memory_gb=16, gpus=1, gpu_gib=78, bits=16),
    Tier(config="qwen3_omni_2x48gb", what="Qwen3-Omni in 8 bits", memory_gb=16, gpus=2, gpu_gib=44, bits=8),
    Tier(config="qwen3_omni_48gb", what="Qwen3-Omni in 4 bits", memory_gb=16, gpus=1, gpu_gib=44, bits=4),
    Tier(config="gpu_24gb", what="Gemma 4 26B-A4B with the voice of Qwen3-TTS", memory_gb=6, gpus=1, gpu_gib=22),
    Tier(config="gpu_12gb", what="Gemma 4 E4B with Kokoro's voice", cores=4, memory_gb=4, gpus=1, gpu_gib=11),
    Tier(config="laptop", what="Qwen3 1.7B with Kokoro's voice", cores=4, memory_gb=6),
    Tier(config="starter", what="open questions in English on two cores", cores=2, memory_gb=2),
    Tier(config="nano", what="the built-in model with a few dozen requests"),
)
"""The most capable configuration first."""


def setup() -> None:
    """Print the recommended configuration and the command that starts it."""
    machine = this_machine()
    for line in report(machine, recommended(machine)):
        typer.echo(line)


def this_machine() -> Machine:
    return Machine(os.cpu_count() or 1, free_memory() / 1e9, _gpus_gib())


def recommended(machine: Machine) -> Tier:
    """Return the most capable tier that fits."""
    return next(tier for tier in TIERS if tier.fits(machine))


def report(machine: Machine, tier: Tier) -> Iterator[str]:
    """Yield the lines that `parley setup` prints."""
    yield f"This machine has {machine}."
    yield f"Recommended: {tier.config}, {tier.what}. Start it with:"
    yield f"  {command(tier)}"
    megabytes = OMNI_MB if tier.bits else sum(model.size_mb for model in missing_of(tier.config))
    yield f"Download size of the models: {_size(megabytes)}." if megabytes else "No download is needed."


def command(tier: Tier) -> str:
    """Return one shell command that downloads what is missing and starts the server."""
    steps: list[str] = []
    path = configurations()[tier.config]
    in_clone = is_clone()
    if in_clone and tier.config == STARTER:
        return "make serve"  # downloads the models too
    parley = sys.argv[0] if Path(sys.argv[0]).stem == "parley" else "parley"
    if not in_clone and (extra := _extra(path)):
        steps.append(install_command(extra))
    if not tier.bits and missing_of(tier.config):
        steps.append(shlex.join([parley, "pull", "--config", tier.config]))
    if tier.bits in (4, 8):
        folder = OMNI.partition("/")[2]
        target = f"{path.parent}/qwen3-omni-int{tier.bits}"
        steps.append(shlex.join(["hf", "download", OMNI, "--local-dir", folder]))
        steps.append(shlex.join([parley, "quantize", "--bits", str(tier.bits), folder, target]))
    hub = f"hub:{OMNI}" if tier.bits == 16 else ""
    if in_clone:
        start = ["make", "serve", f"CONFIG=configs/{path.name}", *([f"WEIGHTS={hub}"] if hub else [])]
    else:
        start = [parley, "serve", tier.config, *(["--weights", hub] if hub else [])]
    return " && ".join([*steps, shlex.join(start)])


def _extra(path: Path) -> str:
    """Return the pip extra that a configuration needs, from its line ``# extra: NAME``; empty for none."""
    found = re.search(r"^# extra: (\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def _gpus_gib() -> tuple[float, ...]:
    """Return the memory of each NVIDIA GPU; none if the driver's tool is missing or does not respond."""
    try:
        told = subprocess.run(ASK_GPU, capture_output=True, text=True, timeout=ASK_GPU_S, check=True).stdout
        return tuple(int(line) / 1024 for line in told.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()


def _size(megabytes: int) -> str:
    return f"{megabytes} MB" if megabytes < 1000 else f"{megabytes / 1000:.1f} GB"
