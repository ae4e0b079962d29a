"""What the timing of a stranger's path reads from pip's log."""

from __future__ import annotations

from pathlib import Path

from scripts.stranger import fetched

LOG = """\
2026-01-02T03:04:05,000 Collecting numpy==2.4.0
2026-01-02T03:04:05,500   Downloading numpy-2.4.0-cp313-manylinux_2_27_x86_64.whl (16.0 MB)
2026-01-02T03:04:07,500 Collecting rich
2026-01-02T03:04:08,000   Processing {folder}/rich-1.0-py3-none-any.whl
2026-01-02T03:04:08,100   Downloading idna-3.11-py3-none-any.whl (500 kB)
2026-01-02T03:04:08,350   Downloading idna-3.11-py3-none-any.whl.metadata
2026-01-02T03:04:09,000 Installing collected packages: rich, numpy
"""


def test_packages_of_a_network_and_of_folders_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "rich-1.0-py3-none-any.whl").write_bytes(bytes(3_000_000))
    log = tmp_path / "pip.log"
    log.write_text(LOG.format(folder=tmp_path))
    assert fetched(log) == "16 MB of packages from a network at 7 MB/s, 3 MB from folders"
