"""Private parts of aioice that are used or set here, verified for version 0.13.0.

For another version, ``test_aioice_compat`` lists what to verify again: these, and what ``ice.py`` extends and replaces.
"""

from __future__ import annotations

from functools import partial

import aioice.ice

from app.transports.inside import Inside

READ = "0.13.0"
NAMES = frozenset({"_protocols", "_check_list", "_queue", "_transport_policy"})
"""Private names of a connection."""

# Consent checks come every 5 s, and each waits half a second for its answer: four are missed within 27 s.
aioice.ice.CONSENT_FAILURES = 4

inside = partial(Inside, names=NAMES)
"""The private parts of an aioice object."""
