"""``options.kernels: auto`` gives people kernels that ran on a GPU as they are written, and no others."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.worker.kernels import ran

SOURCE = '''
@triton.jit
def doubled(x, out, SIZE: tl.constexpr):
    """Twice as much."""
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.load(x + at) * 2)  # of all
'''


def test_every_kernel_is_the_one_that_ran_on_a_gpu() -> None:
    known = tomllib.loads((Path(__file__).parent / "ran.toml").read_text(encoding="utf-8"))
    changed = sorted({name for name, _ in known.items() ^ ran.here().items()})
    assert not changed, f"{changed}: run `make gpu` on a GPU and write ran.toml, or let `auto` leave kernels out"


def test_what_a_device_computes_counts_and_how_it_is_told_does_not() -> None:
    ((name, first),) = ran.written("file", SOURCE)
    told = SOURCE.replace("Twice as much", "The double").replace("  # of all", "").replace("(0, SIZE)", "(\n 0, SIZE)")
    assert dict(ran.written("file", told)) == {"file.doubled": first}
    assert name == "file.doubled"
    assert dict(ran.written("file", SOURCE.replace("* 2", "* 3"))) != {name: first}
    assert not dict(ran.written("file", SOURCE.replace("@triton.jit", ""))), "what the host calls is no kernel"
