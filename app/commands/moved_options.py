"""Options that have moved to other commands. Each is refused with one sentence that names the new command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand

SERVE = "python -m benchmarks.serve"
MOVED_FROM_BENCH = {
    "--against": "python -m benchmarks.against",
    "--ablate": "python -m benchmarks.ablation",
    "--serve": SERVE,
    "--at-once": SERVE,
    "--rate": SERVE,
    "--voices": SERVE,
    "--replicas": SERVE,
    "--voice-answers": "make soak",
    "--resume": "make soak",
    "--plot": "python -m benchmarks.against --json FILE",
}
"""The replacement for each former option of `parley bench`, in a clone of the repository."""


def moved_options(moved: Mapping[str, str]) -> type[TyperCommand]:
    """Return a command class that refuses the options in ``moved``, naming the replacement."""

    class Command(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            for name in (arg.partition("=")[0] for arg in args):
                if name in moved:
                    raise typer.BadParameter(
                        f"the option {name} has moved: run `{moved[name]}` in a clone of Parley", ctx
                    )
            return super().parse_args(ctx, args)

    return Command
