"""List the statements about faults that the server survives (network, input, attackers), and the tests that prove them.

    python -m scripts.faults [--markdown] [N1 I4 ...]

The statements are in `tests/faults/statements.txt`; a test proves some with ``@pytest.mark.fault("N1.1", ...)``. Fails
if a statement has no test. Tests are parsed, not run; see scripts/seeds.py.
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
