"""What a dense layer of few bits costs beside the same layer in full: ours, torch's own packed products, and torchao's.

    python -m benchmarks.dense [--device cuda] [--dtype bfloat16] [--rows 1,16,64] [--rounds 9] [--threads 1] [NAME ...]

A line is one layer, one number of rows and one precision, at the true shapes of Qwen3-Omni-30B-A3B and Qwen3-0.6B, with
random weights; NAME is part of a line's name. All ways of a precision multiply with the same numbers and scales, those
that ``parley quantize`` makes: 4 and 8 bits in groups of GROUP inputs, and 8 bits with one scale for an output.

plain    the layer in full, in the stage's dtype
ours     the weight is written out, multiplied with, and forgotten
torch    torch's own packed product (``_weight_int4pack_mm``, ``_weight_int8pack_mm``), for which torchao is not needed;
         on a processor the server takes that of four bits in bfloat16 for few rows, and else computes as ``ours``
torchao  torchao's tensor of that precision, not compiled

Times are medians over the rounds, in each of which every way computes once. With one thread of a processor they are
that processor's own seconds, so that other work on the machine matters little; else they are the clock's. On a GPU, a
round is a graph of CALLS calls, whose weight may lie in the cache from the call before. Behind a time stand what part
of ours it is, and the error: the largest, as a part of the largest value, from the weight written out and multiplied
with in float32.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from engine.worker.nn.quantized import QuantizedWeight, halves, in_halves, linear, pairs
from engine.worker.quantize import rounded

GROUP = 128
MISSING = "torchao is not installed, so its column is empty: pip install torchao, in an environment of its own."
CALLS = 10
MOST_ROUNDED = 8192  # outputs that have numbers of their own: rounding a head over 152,064 words takes minutes
LAYERS: dict[str, tuple[int, int]] = {
    "thinker qkv": (5120, 2048),
    "thinker o_proj": (2048, 4096),
    "talker qkv": (2560, 1024),
    "talker, predictor, 0.6B o_proj": (1024, 2048),
    "predictor, 0.6B qkv": (4096, 1024),
    "predictor, 0.6B gate_up": (6144, 1024),
    "predictor, 0.6B down": (1024, 3072),
    "thinker lm_head": (152064, 2048),
    "0.6B lm_head": (151936, 1024),
}
"""Outputs and inputs of layers as they are computed: those that eat the same rows are one product."""
PRECISIONS: dict[str, tuple[int, int | None]] = {"4": (4, GROUP), "8": (8, GROUP), "8 by rows": (8, None)}
"""Bits, and inputs that share a scale: all of an output's where no number stands."""
Product = Callable[[Tensor], Tensor]


def quantized(weight: Tensor, bits: int, group: int | None) -> QuantizedWeight:
    """A weight [out, in] as a checkpoint of ``parley quantize`` is read; written out in the weight's dtype."""
    numbers, scales = rounded(weight, bits, group or weight.shape[1])
    numbers = (numbers.to(torch.int16) + (1 << (bits - 1))).to(torch.uint8)
    return QuantizedWeight(in_halves(numbers) if bits == 4 else numbers, scales, None, None, bits, weight.dtype)


def packed(weight: QuantizedWeight) -> tuple[Tensor, Tensor]:
    """Four bits as torch's product wants them on this device, and the scales."""
    ops: Any = torch.ops.aten
    numbers = halves(weight.numbers)
    if weight.device.type == "cpu":
        return ops._convert_weight_to_int4pack_for_cpu(numbers.to(torch.int32), 1), pairs(weight)
    return ops._convert_weight_to_int4pack((numbers[:, ::2] << 4) | numbers[:, 1::2], 8), pairs(weight)


def of_torch(weight: QuantizedWeight) -> Product | None:
    """torch's own product; there is none for 8 bits in groups."""
    ops: Any = torch.ops.aten
    groups = weight.scales.shape[1]
    if weight.bits == 4:
        numbers, scales = packed(weight)
        product = ops._weight_int4pack_mm_for_cpu if weight.device.type == "cpu" else ops._weight_int4pack_mm
        return lambda x: product(x, numbers, x.shape[1] // groups, scales)
    if groups > 1:
        return None
    signed, scales = _signed(weight), weight.scales[:, 0].to(weight.dtype)
    return lambda x: ops._weight_int8pack_mm(x, signed, scales)


def of_torchao(weight: QuantizedWeight) -> Product | None:
    """torchao's tensors of the same numbers, where it is installed."""
    if find_spec("torchao") is None:
        return None
    tensors: Any = import_module("torchao.quantization")
    out, groups = weight.scales.shape
    if weight.bits == 8:
        signed = _signed(weight)
        whole = tensors.Int8Tensor(signed, weight.scales, [1, signed.shape[1] // groups], weight.dtype)
        return lambda x: F.linear(x, whole)
    kind = tensors.Int4TilePackedTo4dTensor
    if weight.device.type == "cpu":
        kind = import_module("torchao.prototype.quantization.int4").Int4OpaqueTensor
    width = 2 * weight.numbers.shape[1]
    few = kind(*packed(weight), [1, width // groups], torch.Size((out, width)))
    return lambda x: F.linear(x, few)


def _signed(weight: QuantizedWeight) -> Tensor:
    return (weight.numbers ^ 128).view(torch.int8)


WAYS: dict[str, Callable[[QuantizedWeight], Product | None]] = {
    "ours": lambda weight: partial(linear, weight=weight),
    "torch": of_torch,
    "torchao": of_torchao,
}


def medians(computes: Sequence[Callable[[], object]], rounds: int, device: torch.device) -> list[float]:
    """Seconds of one call of each, which take turns."""
    calls, clock = 1, time.perf_counter if torch.get_num_threads() > 1 else time.thread_time
    if device.type == "cuda":
        calls, clock = CALLS, time.perf_counter
        computes = [_as_graph(compute, device) for compute in computes]
    times_s: list[list[float]] = [[] for _ in computes]
    for turn in range(rounds + 1):  # the first one warms up
        for compute, own in zip(computes, times_s, strict=True):
            begun_s = clock()
            compute()
            if turn:
                own.append((clock() - begun_s) / calls)
    return [statistics.median(own) for own in times_s]


def _as_graph(compute: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """CALLS calls as one, which waits for the device."""
    compute()  # a kernel is set up outside of a graph
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            compute()
    return lambda: (graph.replay(), torch.cuda.synchronize(device))


def lines(
    shape: tuple[int, int], rows: Iterable[int], dtype: torch.dtype, device: torch.device, rounds: int
) -> Iterator[list[str]]:
    """Measure a layer: rows, precision, and what stands in the columns of each way."""
    dice = torch.Generator().manual_seed(1)
    some = torch.randn(min(shape[0], MOST_ROUNDED), shape[1], generator=dice) / math.sqrt(shape[1])
    some, again = some.to(device, dtype), torch.arange(shape[0], device=device) % MOST_ROUNDED
    weight = some[again]
    for precision, (bits, group) in PRECISIONS.items():
        few = quantized(some, bits, group)[again]
        exact = QuantizedWeight(few.numbers, few.scales.float(), None, None, bits, torch.float32).dense().T
        made = {name: make(few) for name, make in WAYS.items()}
        products = {name: product for name, product in made.items() if product is not None}
        for count in rows:
            x = torch.randn(count, shape[1], generator=dice).to(device, dtype)
            right = x.float() @ exact
            computes = [partial(F.linear, x, weight), *(partial(product, x) for product in products.values())]
            plain_s, *took_s = medians(computes, rounds, device)
            cells = dict.fromkeys(WAYS, "–")
            for (name, product), one_s in zip(products.items(), took_s, strict=True):
                off = float((product(x).float() - right).abs().max() / right.abs().max())
                cells[name] = f"{one_s:.2g} ({one_s / took_s[0]:.2g} ×, {off:.1e})"
            yield [str(count), precision, f"{plain_s:.2g}", *cells.values()]


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="measure the layers whose names contain one of these")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--rows", default="1,16,64")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1, help="what `workers[].threads` would be")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    table = Table("seconds", "rows", "bits", "plain", *WAYS)
    for name, shape in LAYERS.items():
        if not asked.names or any(one in name for one in asked.names):
            rows, dtype = [int(count) for count in asked.rows.split(",")], getattr(torch, asked.dtype)
            for line in lines(shape, rows, dtype, torch.device(asked.device), asked.rounds):
                table.add_row(f"{name}, {shape[0]} × {shape[1]}", *line)
    Console(width=160).print(table)
    if find_spec("torchao") is None:
        sys.stdout.write(f"{MISSING}\n")


if __name__ == "__main__":
    main()
