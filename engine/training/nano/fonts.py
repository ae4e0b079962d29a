"""Typefaces for printed characters, for training and for tests.

All come from Debian packages with free licences; none is committed.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from PIL import ImageFont

FOLDER = Path("/usr/share/fonts")
LEARNED = (
    "DejaVu", "Liberation", "OpenSans", "Free(Sans|Serif|Mono)", "Carlito", "Caladea", "Cantarell", "LinBiolinum_R",
    "LinLibertine_R", "Cabin", "FiraCode", "NotoMono", "Inconsolata", "Play", "Andika", "Charis", "UniversalisADF",
    "GilliusADF", "Tuffy", "Nimbus", "Comfortaa", "Quicksand", "LeagueSpartan", "BebasNeue", "mononoki", "Arimo",
    "Tinos",
)  # fmt: skip
"""Debian: fonts-dejavu, -liberation, -open-sans, -freefont-ttf, -crosextra-carlito, -crosextra-caladea, -cantarell,
-linuxlibertine, -cabin, -firacode, -noto-mono, -inconsolata, -play, -sil-andika, -sil-charis, -adf-universalis,
-adf-gillius, -tuffy, -urw-base35, -comfortaa, -quicksand, -league-spartan, -bebas-neue, -mononoki, -croscore."""
HELD_OUT = ("Lato", "Roboto-", "Karla", "PT[FS]", "CourierPrime", "Oxygen", "Hack")
"""Debian: fonts-lato, -roboto-unhinted, -karla, -paratype, -courier-prime, -oxygen, -hack."""
_TOO_THIN = re.compile("Hairline|Thin|Light|Symbol|Dingbat|Math|Initials|Keyboard|Tamil")
BUILT_IN = Path("pillow")
"""Pillow's built-in typeface (Aileron), held out and available on every machine."""


def learned(folder: Path = FOLDER) -> list[Path]:
    return _matching(folder, LEARNED)


def held_out(folder: Path = FOLDER) -> list[Path]:
    """Return the built-in typeface and the installed Debian ones for tests."""
    return [BUILT_IN, *_matching(folder, HELD_OUT)]


def _matching(folder: Path, names: tuple[str, ...]) -> list[Path]:
    wanted = re.compile("|".join(f"(?:{name})" for name in names))
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".ttf", ".otf") and wanted.match(path.stem))
    return [path for path in files if not _TOO_THIN.search(path.stem)]


@cache
def font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    """Return a typeface at a size in pixels."""
    if path != BUILT_IN:
        return ImageFont.truetype(str(path), size)
    made = ImageFont.load_default(size)
    assert isinstance(made, ImageFont.FreeTypeFont), "Pillow was built without FreeType"
    return made
