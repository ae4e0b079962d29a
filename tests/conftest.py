"""What holds for every test: nothing is left behind, nothing leaves the machine, and no tool is missed in silence."""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import network
import pytest
import tools
from gates import _leaves_no_tasks, leaves_nothing_behind, measures_alone, stays_on_this_machine
from loaded_once import loaded_once

from scripts.suites import HEAVY, SLOW_PATHS

__all__ = ["_leaves_no_tasks", "leaves_nothing_behind", "loaded_once", "measures_alone", "stays_on_this_machine"]

GUARD = Path(__file__).parent / "guard"
STACK_DEPTH = 1
"""Frames that asyncio's debug mode keeps of where each callback was made. Its own ten cost more than the callbacks."""
FUTURE_DEPTH = 2
"""The same for tasks and futures, whose C code asks for the whole stack: that was a third of what the app's tests
took."""
AUTHORITIES = GUARD / "no_authority.pem"
"""What HTTP clients trust here: one certificate, of which nobody has the key, instead of the machine's 140, which each
client reads in 25 ms. No test asks a server that one of them vouches for."""
os.environ.setdefault("TRITON_INTERPRET", str(int("gpu" not in sys.argv)))
"""Whether Triton interprets kernels, which it asks once, when it is imported: everywhere but under ``-m gpu``."""
FIRST = ("tests/web/", "tests/engine/worker/models/", "tests/engine/worker/nn/", "tests/engine/worker/kernels/")
"""Where the longest tests are, and those that share checkpoints and references, which a process makes when it first
wants one. Beside other processes they come first: what is shared out at the end is short, and wants little."""


def pytest_configure(config: pytest.Config) -> None:
    network.install()
    hypothesis.settings.register_profile("on any machine", deadline=None)
    hypothesis.settings.load_profile("on any machine")
    pytest.MonkeyPatch().setattr("asyncio.constants.DEBUG_STACK_DEPTH", STACK_DEPTH)
    pytest.MonkeyPatch().setattr(traceback.extract_stack, "__defaults__", (None, FUTURE_DEPTH))
    os.environ["SSL_CERT_FILE"] = str(AUTHORITIES)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: what tests start would ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):  # beside others, where threads would only wait for each other
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(GUARD), os.environ.get("PYTHONPATH", "")]))
    if unknown := tools.REQUIRED - {*tools.TOOLS, tools.WEIGHTS}:
        known = ", ".join((*tools.TOOLS, tools.WEIGHTS))
        raise pytest.UsageError(f"PARLEY_REQUIRE: unknown tool {', '.join(sorted(unknown))}; known: {known}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose tool is not here, with the reason; where the tool is required, fail."""
    for tool in tools.TOOLS:
        if item.get_closest_marker(tool) and (missing := tools.missing(tool)):
            if tool in tools.REQUIRED:
                pytest.fail(f"PARLEY_REQUIRE: {missing}")
            pytest.skip(missing)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What all tests together import stays: a million objects, through which each full collection went for half a
    second of whichever test it fell into."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def what_stays_is_looked_through_once() -> Iterator[None]:
    """What is alive behind a module (libraries, weights, caches) stays until the end, and full collections during the
    next ones need not go through it: that was a seventh of what the tests of HTTP took."""
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """What lies among slow tests is one."""
    if item.nodeid.startswith(SLOW_PATHS):
        item.add_marker("slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The heavy suites run only when they are asked for: by marker (`make soak`), or by a test's full name. Where
    processes share the tests out, the longest come first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
    if not config.option.markexpr and not any("::" in argument for argument in config.args):
        heavy = {*HEAVY}
        left = [item for item in items if heavy.isdisjoint(mark.name for mark in item.iter_markers())]
        config.hook.pytest_deselected(items=[item for item in items if item not in left])
        items[:] = left
