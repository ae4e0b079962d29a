"""Whether the built-in model ``nano`` accepts speech on this platform, and the reason if not.

nano's speech recogniser, pocketsphinx, has no wheel for some Python versions and processors. The rest of nano works
without it.
"""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec


def hears() -> bool:
    """Return whether nano can recognise speech: whether pocketsphinx is installed."""
    return find_spec("pocketsphinx") is not None


def why() -> str:
    """Return a sentence for users that explains why speech input is unavailable."""
    version = "{}.{}".format(*sys.version_info[:2])
    return (
        f"nano cannot hear on this machine: pocketsphinx has no package for Python {version} on {platform.machine()}. "
        "Type to it, or use Python 3.11 or 3.13."
    )
