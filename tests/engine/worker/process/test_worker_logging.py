"""The lines that a worker's process writes: `parley ask` and `parley doctor` show them to people."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import logging
from engine.worker.__main__ import configure_logging
configure_logging()
for name in ("some_library", "engine.worker.stage", "parley_stage_0123", "__main__"):
    logging.getLogger(name).info("information")
    logging.getLogger(name).warning("warning")
logging.shutdown()
"""


def test_libraries_write_their_warnings_only() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.splitlines() == [
        "WARNING some_library: warning",
        *(
            f"{level.upper()} {name}: {text}"
            for name in ("engine.worker.stage", "parley_stage_0123", "__main__")
            for level, text in (("info", "information"), ("warning", "warning"))
        ),
    ]
