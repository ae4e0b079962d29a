"""The check whether nano's ears can be had here, and the sentence for users who speak where they cannot.

pocketsphinx has no wheel for every Python and processor. Everything else of nano works without it.
"""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec


def hears() -> bool:
    """Whether the ears' decoder is installed."""
    return find_spec("pocketsphinx") is not None


def why() -> str:
    """One sentence for those who would speak."""
    version = "{}.{}".format(*sys.version_info[:2])
    return (
        f"nano cannot hear here, since pocketsphinx has no package for Python {version} on {platform.machine()}: "
        "type to it, or use Python 3.11 or 3.13."
    )
