"""Whoever is told to stop leaves the block as by an exit, so that what was started in it ends."""

from __future__ import annotations

import os
import signal

import pytest

from app.bench import stoppable


def test_sigterm_leaves_the_block_and_its_handler_goes_with_it() -> None:
    before, ended = signal.getsignal(signal.SIGTERM), False
    with pytest.raises(SystemExit) as stopped, stoppable():  # noqa: PT012 - the signal comes where it will
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            ended = True
    assert stopped.value.code == 143
    assert ended
    assert signal.getsignal(signal.SIGTERM) is before
