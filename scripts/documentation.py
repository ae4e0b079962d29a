"""MkDocs hooks for ``mkdocs.yml``: the site has every Markdown page of the repository.

Pages keep their paths, so links between them work both on GitHub and on the site. The README is the exception: it is
GitHub's front page, and the site begins with the quickstart instead.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
HOME = "docs/quickstart.md"
README = "README.md"
ASSETS = ("docs/site.css", "web/public/icon.svg")
UNSEARCHED = ("CHANGELOG.md", "MAINTAINING.md", "engine/training/", "engine/weights/")
"""Pages that the search index leaves out: users look for instructions, not for history or training."""
FENCE = re.compile(r"^ *```")
LIST_ITEM = re.compile(r"^( +)(?=([-*]|\d+\.) )")
LINK = re.compile(r"(?<!!)\]\(([^()\s#:]+)((?:#[\w-]+)?)\)")


def pages() -> list[str]:
    """Return the Markdown pages of the repository, relative to its root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [page for page in listed if (ROOT / page).is_file()]


def linked(page: str) -> set[str]:
    """Return the files of the repository that a page links to, relative to its root."""
    found = {(ROOT / page).parent / path for path, _ in LINK.findall((ROOT / page).read_text(encoding="utf-8"))}
    return {str(path.resolve().relative_to(ROOT)) for path in found if path.is_file()}


def on_files(files: Files, config: Any) -> Files:
    """Replace the files that MkDocs found by the pages, and by the files that they link to."""
    for file in list(files):
        if file.abs_src_path is not None and Path(file.abs_src_path).is_relative_to(ROOT / "docs"):
            files.remove(file)
    names = {*pages(), *ASSETS, *(target for page in pages() for target in linked(page))}
    for name in sorted(names - {README}):
        file = File.generated(config, name, abs_src_path=str(ROOT / name))
        if name == HOME:
            file.name = "index"
            file.dest_uri = "index.html"
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Adapt a page to MkDocs: indent nested lists by four, link to files only, and set what the search indexes."""
    path = page.file.src_uri
    if path.startswith(UNSEARCHED):
        page.meta["search"] = {"exclude": True}
    lines = list[str]()
    fenced = False
    for line in markdown.splitlines():
        fenced ^= FENCE.match(line) is not None
        lines.append(line if fenced else LIST_ITEM.sub(lambda indent: indent[1] * 2, line))
    folder = posixpath.dirname(path)
    return LINK.sub(lambda link: f"]({_target(link[1], folder)}{link[2]})", "\n".join(lines))


def _target(path: str, folder: str) -> str:
    """Return the file for a link: a folder's page is its README, and the home page stands for the repository's."""
    path = f"{path}README.md" if path.endswith("/") else path
    return posixpath.relpath(HOME, folder) if posixpath.normpath(posixpath.join(folder, path)) == README else path
