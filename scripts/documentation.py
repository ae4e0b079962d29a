"""mkdocs hooks that collect the site's pages: every Markdown page of the repository (``mkdocs.yml``).

Pages keep their repository paths, so links between them work unchanged. Other files that a page links to are copied.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^ *```")
LIST_ITEM = re.compile(r"^( +)(?=([-*]|\d+\.) )")
LINK = re.compile(r"(?<!!)\]\(([^()\s#:]+)((?:#[\w-]+)?)\)")


def pages() -> list[str]:
    """Return the paths of all Markdown pages, relative to the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def linked(page: str) -> set[str]:
    """Return the repository files that a page links to."""
    found = {(ROOT / page).parent / path for path, _ in LINK.findall((ROOT / page).read_text(encoding="utf-8"))}
    return {str(path.resolve().relative_to(ROOT)) for path in found if path.is_file()}


def on_files(files: Files, config: Any) -> Files:
    """Give mkdocs the pages and the files that they link to."""
    for file in list(files):
        if file.abs_src_path is not None and Path(file.abs_src_path).is_relative_to(ROOT / "docs"):
            files.remove(file)
    for name in sorted({*pages(), *(target for page in pages() for target in linked(page))}):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Adapt a page to Python-Markdown: double the indent of nested lists, and link folders to their README."""
    lines, fenced = list[str](), False
    for line in markdown.splitlines():
        fenced ^= FENCE.match(line) is not None
        lines.append(line if fenced else LIST_ITEM.sub(lambda indent: indent[1] * 2, line))
    return LINK.sub(lambda link: f"]({_page_of(link[1])}{link[2]})", "\n".join(lines))


def _page_of(path: str) -> str:
    return f"{path}README.md" if path.endswith("/") else path
