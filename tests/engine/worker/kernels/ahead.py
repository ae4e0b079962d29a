# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
"""Compile every kernel ahead for GPUs that are not here, just as its launcher launches it.

    python -m tests.engine.worker.kernels.ahead

A launch is caught on its way to the device: its arguments say the types, its keywords the constants. Prints a line for
each kernel, kind of GPU and kind of weights, with the shared memory that a program takes; ends with 1 where that is
more than the GPU has.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from engine.worker.kernels import experts as written_out
from engine.worker.kernels.experts import LAYOUTS
from engine.worker.kernels.launched import Launched
from engine.worker.nn.sampling_params import BatchSamplingParams, SamplingParams
from tests.engine.worker.kernels.weights import KINDS, weight

SHARED = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024}
"""The kinds of GPUs (A100; RTX 3090; L40S and RTX 4090; H100 and H200), and the bytes of shared memory that one program
may have there."""
SMALL = (86, 89)
NAMES = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32",
    torch.uint8: "u8", torch.int8: "i8", torch.bool: "i1",
}  # fmt: skip


class Caught:
    """Kernels that were compiled in place of being launched."""

    def __init__(self) -> None:
        self.title, self.lines, self.too_large, self.done = "", list[str](), 0, set[tuple[str, ...]]()

    def __call__(self, kernel: Any, *args: Any, grid: Any, warmup: bool, **constants: Any) -> None:
        given = dict(zip(kernel.arg_names, args, strict=False)) | constants
        fixed = {one.name: given[one.name] for one in kernel.params if one.is_constexpr}
        types = {name: "constexpr" if name in fixed else _type(given[name]) for name in kernel.arg_names}
        if (key := (kernel.__name__, str(types), str(fixed))) in self.done:
            return
        self.done.add(key)
        sixteen = [["tt.divisibility", 16]]
        aligned = {(i,): sixteen for i, name in enumerate(kernel.arg_names) if _even(given[name], types[name])}
        for capability, most in SHARED.items():
            if capability in SMALL and "float32" in self.title:
                continue  # in float32 there is too little room for some: those GPUs' stages compute in 16 bits
            source = ASTSource(kernel, types, fixed, aligned)
            options = {name: constants[name] for name in ("num_warps", "num_stages") if name in constants}
            made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            assert "cubin" in made.asm
            shared = made.metadata.shared
            self.too_large += shared > most
            self.lines.append(f"sm_{capability} {kernel.__name__}: {self.title}: {shared} bytes of shared memory")


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"*{NAMES[value.dtype]}"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def _even(value: Any, kind: str) -> bool:
    """Whether a launch tells the compiler that it divides by 16: then loads are wide, and go ahead of their use."""
    return kind != "constexpr" and (isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0))


def main() -> int:
    caught, kernels = Caught(), Launched()
    JITFunction.run = lambda kernel, *args, **more: caught(kernel, *args, **more)  # type: ignore[method-assign]
    index = torch.zeros(4, dtype=torch.int64)
    for dtype in (torch.float32, torch.bfloat16):
        caught.title = f"{dtype}, 32 heads of 128 over 4"
        query, cache = torch.zeros(4, 32, 1, 128, dtype=dtype), torch.zeros(4, 2048, 128, dtype=dtype)
        kernels.attend(query, cache, cache, index, index + 1, 2048)
        piece = query.transpose(0, 2)[:1].expand(1, 32, 4, 128).contiguous()
        kernels.varlen(piece, cache, cache, torch.from_numpy(kernels.cut([0, 9], [0, 1], [3, 1])))
        x, experts = torch.zeros(4, 256, dtype=dtype), torch.zeros(4, 2, dtype=torch.int64)
        caught.title = f"{dtype}, true shapes"
        heads, angle = torch.zeros(4, 1, 40, 128, dtype=dtype), torch.zeros(4, 1, 1, 128, dtype=dtype)
        for norms in (None, (heads[0, 0, 0], heads[0, 0, 1])):
            kernels.place(heads, norms, 1e-6, (angle, angle), index[:, None], cache, cache)
        rows = torch.zeros(4, 2048, dtype=dtype)
        kernels.add_norm(rows, rows, rows[0], 1e-6)
        kernels.route(rows[:, :128].contiguous(), 8, True)
        kernels.swiglu(rows)
        signal, sizes, past = rows[:, None, :256].expand(4, 96, 256), rows[0, :96], torch.zeros(4, 96, 6, dtype=dtype)
        for before in (past, None):
            kernels.snake(signal, sizes, sizes, before, index, 6)
        params = BatchSamplingParams.of([SamplingParams(0, top_k=50)] * 4, index.device)
        kernels.draw(rows.float(), params, 1, index, 2)
        kernels.attend(query, cache, cache, index, index + 1, 17)
        for name in KINDS if dtype == torch.bfloat16 else ("int4", "int8"):
            caught.title = f"{dtype}, {name}"
            gate_up, down = (weight(4, *shape, 128, KINDS[name], dtype, dtype) for shape in ((256, 256), (256, 128)))
            kernels.experts(x, experts, x[:, :2], gate_up, down)
        gate_up, down = (torch.zeros(2, *shape, dtype=dtype) for shape in ((2 * 768, 2048), (2048, 768)))
        for _, layout in LAYOUTS if dtype == torch.bfloat16 else LAYOUTS[:1]:
            caught.title = f"{dtype}, written out, true shapes, blocks of {layout.rows} rows"
            written_out.answers(rows, experts, x[:, :2], gate_up, down, layout)
    print("\n".join(caught.lines))
    return int(bool(caught.too_large) or not caught.lines)


if __name__ == "__main__":
    sys.exit(main())
