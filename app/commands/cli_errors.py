"""Error reports of the command line: one sentence on standard error, and exit code 1."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager

import typer

import engine
from app.commands import terminal
from app.commands.sink import ListenerGone
from app.media.audio import MediaError
from engine import EngineError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of a full or read-only disk."""


@contextmanager
def cli_errors() -> Generator[None]:
    """Report an error as one sentence. An interruption ends the command quietly."""
    logging.getLogger(engine.__name__).addHandler(logging.NullHandler())
    try:
        yield
    except (EngineError, MediaError) as error:
        terminal.fail(str(error))
        raise typer.Exit(1) from None
    except ListenerGone:
        raise typer.Exit(0) from None
    except OSError as error:
        if error.errno not in FULL:
            raise
        terminal.fail(f"the output cannot be written ({error.strerror}): free some space, or write it elsewhere")
        terminal.forget(sys.stdout)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
