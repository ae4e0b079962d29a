"""Whether the built-in model ``nano`` supports speech input on this platform.

Its recogniser, pocketsphinx, has no wheel for some Python versions and processors. The rest of nano works without it.
"""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec


def is_supported() -> bool:
    """Return whether pocketsphinx is installed."""
    return find_spec("pocketsphinx") is not None


def why_unsupported() -> str:
    """Return a sentence for users that explains why speech input is unavailable."""
    version = "{}.{}".format(*sys.version_info[:2])
    return (
        f"nano cannot hear on this machine: pocketsphinx has no package for Python {version} on {platform.machine()}. "
        "Type to it, or use Python 3.11 or 3.13."
    )
