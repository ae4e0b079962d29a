"""Build a release: packages, a bill of materials, and licences. Needs a network.

    python -m scripts.release [--tag vVERSION] [--folder out/release]

parley_voice-VERSION.*        the source distribution and the wheel, which is pure Python
sbom.json                     CycloneDX: every package of an installation, with the extras that bring it if the
                              package alone does not, and the weights in the wheel
LICENCES.md                   their licences, and those of the `parley pull` models; a package whose licence is not
                              permissive fails the command
SHA256SUMS                    checksums of all of these

A tag must match the version of pyproject.toml, and CHANGELOG.md must have a heading for it.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name

from engine.deployment.installation import DISTRIBUTION

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("demo", "device", "hf", "local", "mcp", "moonshine", "otel", "phonon", "pocket", "ray", "whisper")
"""Extras for users; the other ones are for developers, or contained in these."""

TOOLS = ("build==1.6.*", "twine==7.*", "cyclonedx-bom==7.*", "pip-licenses==5.5.*")
WEIGHTS = ROOT / "engine" / "weights"
OURS = {"onnx": "Apache-2.0", "weights": "Apache-2.0", "fsg": "Apache-2.0", "dict": "BSD-2-Clause"}
"""Licences of the weights by file type; the dictionaries derive from CMU's. See NOTICE."""
PERMISSIVE = re.compile(
    r"MIT|BSD|BSL-1\.0|Apache|ISC|PSF|Python Software Foundation|0BSD|Zlib|CC0|Unlicense|HPND", re.IGNORECASE
)
NAMED = {
    "orjson": "MPL-2.0 holds for a part that is used unchanged, as the file licence allows",
    "certifi": "MPL-2.0 holds for its list of authorities, which is used unchanged",
    "tqdm": "MPL-2.0 holds for a part that is used unchanged",
    "pocket-tts": "its metadata names no licence; the LICENSE file in its wheel is MIT's",
    "sherpa_onnx": "its metadata says in a sentence what is Apache-2.0",
}
"""Packages whose metadata has no or another licence name, and why they are acceptable."""
BUNDLED = (
    "Some wheels carry libraries: av FFmpeg (LGPL-3.0-or-later) and beside it x264 and x265 (GPL-2.0-or-later; Parley "
    "calls neither), soundfile libsndfile (LGPL-2.1).",
    "Who hands them on, as in a container image, owes their notices and sources.",
)


class ReleaseError(Exception):
    """A reason why the release cannot be built, as one sentence."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", help="the tag to release")
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "release")
    args = parser.parse_args()
    try:
        check(args.tag, version(), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
        made = make(args.folder)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    for path in made:
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path}")
    return 0


def version() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def check(tag: str | None, version: str, changelog: str) -> None:
    """Check that the tag, the version and the changelog match. Raises ReleaseError."""
    if tag is not None and tag != f"v{version}":
        raise ReleaseError(f"the tag {tag} is not v{version}, the version of pyproject.toml")
    heading = re.search(rf"^## {re.escape(version)}(.*)$", changelog, re.MULTILINE)
    if heading is None:
        raise ReleaseError(f"CHANGELOG.md has no heading for {version}")
    if tag is not None and "unreleased" in heading[1]:
        raise ReleaseError(f"CHANGELOG.md still calls {version} unreleased")


def make(folder: Path) -> list[Path]:
    """Build the files of a release in an empty folder, and return them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tools = environment(folder.parent / "release-tools", TOOLS)
    run(tools / "python", "-m", "build", "--outdir", folder, ROOT)
    wheel, source = next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))
    run(tools / "twine", "check", "--strict", wheel, source)
    wanted = "-c", str(ROOT / "constraints.txt"), f"{wheel}[{','.join(EXTRAS)}]"
    installed = environment(folder.parent / "release-installed", wanted)
    extras = brought_by_extras(installed / "python")
    sbom, licences = folder / "sbom.json", folder / "LICENCES.md"
    run(
        tools / "cyclonedx-py",
        "environment",
        installed / "python",
        "--pyproject",
        ROOT / "pyproject.toml",
        "--output-reproducible",
        "--output-format",
        "JSON",
        "--output-file",
        sbom,
    )
    listed = run(tools / "pip-licenses", "--python", installed / "python", "--format", "csv", "--with-urls")
    packages = sorted(csv.DictReader(io.StringIO(listed)), key=lambda one: one["Name"].lower())
    strange = not_permissive(packages)
    if strange:
        raise ReleaseError(f"these packages have licences that are not permissive: {', '.join(strange)}")
    listing = with_weights(with_extras(json.loads(sbom.read_text(encoding="utf-8")), extras))
    sbom.write_text(json.dumps(listing, indent=1), encoding="utf-8")
    licences.write_text(report(packages, extras), encoding="utf-8")
    files = [wheel, source, sbom, licences]
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(f"{digest(path)}  {path.name}\n" for path in files), encoding="utf-8")
    return [*files, sums]


def environment(folder: Path, packages: Sequence[str]) -> Path:
    """Create a virtual environment with these packages, and return its folder of programs."""
    venv.create(folder, clear=True, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return folder / "bin"


def run(*command: object) -> str:
    """Run a command and return its output. Raises ReleaseError with its last line if it fails."""
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise ReleaseError(f"{Path(str(command[0])).name} failed: {said[-1] if said else 'it printed nothing'}")
    return done.stdout


def brought_by_extras(python: Path) -> dict[str, str]:
    """Return the packages that only extras install, by canonical name, with the names of these extras."""
    code = "import json, sys; from scripts.pin import closure; names = sys.argv[1:]; "
    code += "print(json.dumps([[*closure(())], {name: [*closure((name,))] for name in names}]))"
    plain, found = json.loads(run(python, "-c", code, *EXTRAS))
    more = sorted({package for packages in found.values() for package in packages} - {*plain})
    return {one: ", ".join(extra for extra, packages in found.items() if one in packages) for one in more}


def with_extras(sbom: dict[str, Any], extras: Mapping[str, str]) -> dict[str, Any]:
    """Return the bill of materials with the extras as a property of the packages that only they install."""

    def told(part: dict[str, Any]) -> dict[str, Any]:
        names = extras.get(canonicalize_name(part["name"]))
        own = [] if names is None else [{"name": "parley:extras", "value": names}]
        return part | ({"properties": [*part.get("properties", []), *own]} if own else {})

    return {**sbom, "components": [told(part) for part in sbom["components"]]}


def weights() -> list[Path]:
    return sorted(path for path in WEIGHTS.rglob("*") if path.suffix.lstrip(".") in OURS)


def with_weights(sbom: dict[str, Any]) -> dict[str, Any]:
    """Return the bill of materials with the weights in the wheel."""
    ours: list[dict[str, Any]] = [
        {
            "type": "machine-learning-model",
            "bom-ref": f"weights/{path.relative_to(WEIGHTS).as_posix()}",
            "name": path.relative_to(WEIGHTS).as_posix(),
            "hashes": [{"alg": "SHA-256", "content": digest(path)}],
            "licenses": [{"license": {"id": OURS[path.suffix.lstrip(".")]}}],
        }
        for path in weights()
    ]
    return {**sbom, "components": [*sbom["components"], *ours]}


def not_permissive(packages: Iterable[dict[str, str]]) -> list[str]:
    """Return the packages with a licence that is not permissive."""
    return [
        f"{one['Name']} ({one['License']})"
        for one in packages
        if one["Name"] not in NAMED
        and not all(PERMISSIVE.search(part) for part in re.split(r"\bAND\b|;|,", one["License"]))
    ]


def report(packages: Iterable[dict[str, str]], extras: Mapping[str, str]) -> str:
    lines = [f"# Licences of what Parley {version()} brings", "", "| Package | Version | Licence | With |"]
    lines += ["|---|---|---|---|", *(row(one, extras) for one in packages if one["Name"] != DISTRIBUTION)]
    lines += ["", "An extra is named where the package alone does not bring it.", ""]
    lines += [*(f"{name}: {why}." for name, why in NAMED.items()), *BUNDLED, ""]
    lines += ["| Weights in the wheel | Bytes | Licence |", "|---|---|---|"]
    lines += [
        f"| {path.relative_to(ROOT).as_posix()} | {path.stat().st_size:,} | {OURS[path.suffix.lstrip('.')]} |"
        for path in weights()
    ]
    lines += [
        "",
        "NOTICE says where these come from. The following come with nothing: `parley pull NAME` brings one.",
        "",
    ]
    lines += ["| Model | MB | Licence | From |", "|---|---|---|---|"]
    models = yaml.safe_load((ROOT / "engine" / "deployment" / "models.yaml").read_text(encoding="utf-8"))
    lines += [
        f"| {name} | {one['size_mb']} | {one['licence']} | {one.get('repository', '')} |"
        for name, one in models.items()
    ]
    return "\n".join([*lines, ""])


def row(one: dict[str, str], extras: Mapping[str, str]) -> str:
    name = f"[{one['Name']}]({one['URL']})" if one["URL"].startswith("http") else one["Name"]
    return f"| {name} | {one['Version']} | {one['License']} | {extras.get(canonicalize_name(one['Name']), '')} |"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
