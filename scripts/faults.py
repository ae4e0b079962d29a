"""A table of all that the server must survive of its network, its input and attackers, and the tests that prove it.

    python -m scripts.faults [--markdown] [N1 I4 ...]

The statements are `tests/faults/statements.txt`; a test proves some by ``@pytest.mark.fault("N1.1", ...)``. Fails where
one has no test. Tests are read, not run. How: scripts/seeds.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scripts import seeds

STATEMENTS = seeds.ROOT / "tests" / "faults" / "statements.txt"


def main(arguments: Sequence[str]) -> int:
    return seeds.table(arguments, __doc__, STATEMENTS, "fault")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
