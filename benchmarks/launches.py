"""The operations of which a step of Qwen3-Omni-30B-A3B consists on a GPU: what each launch costs adds up.

    python -m benchmarks.launches [--rows 16] [--each]

The stages are built of their true shapes on torch's device ``meta``, and a step runs there once: each operation that
computes something counts as one launch, and each of Triton's as one; views count as none. A GPU may need two for one,
as for a sort. What is counted is a decode step, and a prefill of prompts that are of as many lengths; in bfloat16 on a
GPU that has grouped products, without kernels of our own and with them (``options.kernels``), and with them where the
experts are of four bits.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.memory import KINDS, STAGES, reading
from benchmarks.random_weights import describe
from engine.worker.nn import moe
from engine.worker.nn.slots import Batch
from engine.worker.stage import StageConfig

NOTHING = ("empty", "new_empty", "empty_like", "detach_")
"""Operations that compute nothing."""
SHORT = 512  # positions that a step without kernels looks back at
SHORTEST = 40  # positions of the shortest prompt of a prefill


class Launches(TorchDispatchMode):
    """Counts what is computed, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.names = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name not in NOTHING and (func._schema.is_mutable or not _is_view(args, out)):
            self.names[name] += 1
        return out


def _is_view(given: Any, out: Any) -> bool:
    own = {_storage(one) for one in _tensors(given)}
    return all(_storage(one) in own for one in _tensors(out))


def _storage(one: Tensor) -> int:
    """Return whose memory it is, which on ``meta`` has no address."""
    return one.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


def _tensors(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, list | tuple):
        for one in thing:
            yield from _tensors(one)


@contextmanager
def counted(launches: Launches) -> Generator[None]:
    """Count kernels of Triton, too, in place of launching them; and have grouped products."""
    before = moe.has_grouped  # type: ignore[assignment]
    moe.has_grouped = lambda device, dtype: True
    if find_spec("triton") is None:
        undo = lambda: None  # noqa: E731
    else:
        jit: Any = import_module("triton.runtime.jit").JITFunction
        run = jit.run

        def count(kernel: Any, *args: Any, **more: Any) -> None:
            launches.names[kernel.__name__] += 1

        jit.run = count
        undo = lambda: setattr(jit, "run", run)  # noqa: E731
    try:
        yield
    finally:
        moe.has_grouped = before
        undo()


def step(net: Any, rows: int) -> None:
    """One decode step."""
    net.graphs.computed(torch.empty(10, rows, dtype=torch.int64, device="meta"), SHORT)


def prefill(net: Any, rows: int) -> None:
    """One prompt of each of so many requests, each longer than the one before."""
    batch = Batch()
    for slot in range(rows):
        count = SHORTEST + slot
        embeddings = torch.empty(count, net.decoder.config.hidden_size, dtype=net.dtype, device="meta")
        batch.add(slot, 0, embeddings, np.zeros((3, count), np.float32))
    net.decoder.append(batch, net.cache)


KINDS_OF_STEPS = {
    "thinker step": ("thinker", step),
    "thinker prefill": ("thinker", prefill),
    "talker frame": ("talker", step),
}


def launches(folder: Path, what: str, weights: str, kernels: bool, rows: int) -> Counter[str]:
    """Run one step with so many rows; its operations by their names."""
    options = {"context": 8192, "graphs": "on", "kernels": kernels}
    place = StageConfig(slots=rows, options=options, weights=folder, dtype="bfloat16", device="meta")
    found, (stage, run) = Launches(), KINDS_OF_STEPS[what]
    with reading(KINDS[weights]), torch.inference_mode():
        net = STAGES[stage](place).net
        with counted(found):
            run(net, rows)  # what is made once for each size of batch is made now
            found.names.clear()
            with found:
                run(net, rows)
    return found.names


def main(rows: int, each: bool) -> None:
    ways = [("bfloat16", False)] + [("bfloat16", True), ("int4", True)] * bool(find_spec("triton"))
    with tempfile.TemporaryDirectory() as folder:
        made = describe(Path(folder), small=False)
        for what in KINDS_OF_STEPS:
            for weights, kernels in ways:
                names = launches(made, what, weights, kernels, rows)
                sys.stdout.write(f"{what:15} {weights:8} {'with' if kernels else 'without'} kernels: {names.total()}\n")
                if each:
                    sys.stdout.write("".join(f"    {count:5} {name}\n" for name, count in names.most_common()))
    if len(ways) == 1:
        sys.stdout.write("Triton is not installed: `make kernels` installs it.\n")


if __name__ == "__main__":
    os.environ.pop("TRITON_INTERPRET", None)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--each", action="store_true", help="also print how often each operation comes")
    asked = parser.parse_args()
    main(asked.rows, asked.each)
