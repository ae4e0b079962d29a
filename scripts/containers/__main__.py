"""`make containers`: build the image, deploy it behind Caddy with coturn and Prometheus, and talk to it.

    python -m scripts.containers [--base IMAGE] [--built] [--clean] [--only PART ...]

Needs root, and Debian's buildah, podman, crun, catatonit, mmdebstrap and iproute2; no registry, compose or docker.
Everything is created in out/containers, every socket is in separate network namespaces, and no process outlives the
run. Later runs reuse the root file systems and layers; ``--clean`` removes them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.containers import checks, images, lint, machine, network, services, trouble
from scripts.containers.machine import ROOT, Failed, Machine

PARTS = ("lint", "wheels", "deployment", "trouble")
FOLDER = ROOT / "out" / "containers"
INSIDE = "--inside"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="image with Python (default: made of Debian's packages)")
    parser.add_argument("--clean", action="store_true", help="remove the files of earlier runs")
    parser.add_argument("--built", action="store_true", help="use the image that an earlier run built")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="run only these parts")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        machine.check()
        if options.clean:
            shutil.rmtree(FOLDER, ignore_errors=True)
            return 0
        FOLDER.mkdir(parents=True, exist_ok=True)
        for line in inside(options.only) if options.inside else outside(options):
            print(line, flush=True)
    except Failed as failed:
        print(f"FAILED: {failed}", file=sys.stderr)
        return 1
    if options.inside or not {"deployment", "trouble"} & {*options.only}:
        return 0
    return machine.in_namespaces([INSIDE, "--only", *options.only])


def outside(options: argparse.Namespace) -> Iterator[str]:
    """Run the checks and builds that need the machine's network."""
    if "lint" in options.only:
        yield from lint.lint(FOLDER)
    if "wheels" in options.only:
        yield lint.gpu_wheels(FOLDER)
    if not {"deployment", "trouble"} & {*options.only}:
        return
    here = Machine(FOLDER)
    size = images.check_size(here) if options.built else images.build(here, options.base)
    yield f"image parley:cpu: {size} MB, {images.MOST_MB} at most"


def inside(parts: Sequence[str]) -> Iterator[str]:
    """Run the parts that need separate network namespaces."""
    os.umask(0o022)
    here = Machine(FOLDER)
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="try-") as folder:
        os.chmod(folder, 0o755)  # readable by the containers' users
        network.build(Path(folder))
        if "deployment" in parts:
            yield from deployment(here, Path(folder))
        if "trouble" in parts:
            yield from trouble.all_of(here, Path(folder))


def deployment(here: Machine, folder: Path) -> Iterator[str]:
    """Deploy the services, and check answers, metrics and shutdown. Raises Failed."""
    local, data = folder / "local", folder / "data"
    services.configure(local, network.HOUSE)
    with services.deployed(here, local, data) as found:
        place = checks.Place(data / "caddy" / "caddy" / "pki" / "authorities" / "local" / "root.crt", local / "keys")
        if not here.counts_memory:
            yield "memory and process limits not tested: podman has no control groups here"
        yield from checks.check_health(found["parley"])
        checks.wait_scraped()
        yield from checks.check_answers(place)
        yield from checks.check_hidden()
        yield from checks.check_queries()
        yield from checks.check_stop(found["parley"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
