"""Real servers and commands on a machine that lacks something: each works all the same, or says in one sentence what to
do. Namespaces take away what is missing. `make containers` tries the same with podman, and 512 MB of memory as well."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.commands.doctor import clock, free_memory
from tests.app.rig import ROOT
from tests.guard import tools

PARLEY = f"{sys.executable} -m app"
WITHOUT = [*tools.NAMESPACES, "sh", "-euc"]
"""Runs a script in them."""
ALONE = "ip link set lo up; ip address delete 127.0.0.1/8 dev lo; "
FAKED = "env LD_PRELOAD=$(echo /usr/lib/*/faketime/libfaketime.so.1) FAKETIME=%+dy FAKETIME_DONT_FAKE_MONOTONIC=1 "
READ_ONLY = """
ulimit -n 256; ip link set lo up; mount --rbind / /mnt; mount -o remount,bind,ro /mnt
for folder in tmp var/tmp dev/shm; do mount -t tmpfs tmpfs /mnt/$folder; done
clone=/mnt%(clone)s
[ -d $clone ] || { mkdir -p $clone; mount --bind %(clone)s $clone; mount -o remount,bind,ro $clone; }
for folder in tmp var/tmp dev/shm; do mount -o remount,ro /mnt/$folder; done
exec chroot /mnt sh -euc 'cd %(clone)s; export HOME=/nowhere; ! touch x; ! touch /tmp/x
%(then)s'
"""
"""A clone that lies in one of those folders stays."""
SERVED = """
%(serve)s & server=$!
until %(python)s -m app.commands.health 8000 >&2; do kill -0 $server; sleep 0.2; done
%(then)s
kill $server; wait $server
"""


def tried(script: str, **more: str) -> tuple[int, str]:
    """The exit code of a script in namespaces, and all that it said."""
    env = {**os.environ, **more}
    done = subprocess.run([*WITHOUT, script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout + done.stderr


def served(serve: str, then: str) -> str:
    return SERVED % {"python": sys.executable, "serve": f"{PARLEY} serve {serve}", "then": then}


def one_sentence(said: str) -> str:
    """The one line of a refusal."""
    assert "Traceback" not in said
    lines = said.strip().splitlines()
    assert len(lines) == 1, said
    return lines[0]


@pytest.mark.namespaces
@pytest.mark.slow
def test_it_speaks_with_256_descriptors_and_nowhere_to_write_or_share() -> None:
    """Neither a disk, nor a folder for temporary files, nor /dev/shm."""
    then = f"{PARLEY} say Hello. --url http://127.0.0.1:8000 -o - | wc -c"
    code, said = tried(READ_ONLY % {"clone": ROOT, "then": served("nano", then)})
    assert code == 0, said
    assert max(int(size) for size in re.findall(r"^(\d+)$", said, re.MULTILINE)) > 24_000, said


@pytest.mark.namespaces
@pytest.mark.parametrize(
    ("mount", "sentence"),
    [
        ("-o ro", "error: cannot write /mnt/x.wav: the disk is read-only; use another path"),
        (
            "-o size=16k",
            "error: cannot write /mnt/x.wav: No space left on device; free some space, or use another path",
        ),
    ],
)
def test_a_file_that_cannot_be_written_is_one_sentence(mount: str, sentence: str) -> None:
    code, said = tried(
        f"mount -t tmpfs {mount} tmpfs /mnt; {PARLEY} say 'Good morning to you.' -c script -o /mnt/x.wav"
    )
    assert (code, one_sentence(said)) == (1, sentence)


@pytest.mark.parametrize("command", ["say Hello. -c script -o -", "voices -c script"])
def test_an_output_on_a_full_disk_is_one_sentence(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PARLEY.split(), *command.split()], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100
        )
    assert done.returncode == 1
    assert "free some space, or write it elsewhere" in one_sentence(done.stderr)


@pytest.mark.namespaces
def test_a_log_on_a_full_disk_costs_lines_and_no_server() -> None:
    then = f"{PARLEY} say Hello. --url http://127.0.0.1:8000 -o /dev/null"
    code, said = tried("ip link set lo up; " + served("script >/dev/full 2>&1", then))
    assert code == 0, said
    assert "s of speech" in said


@pytest.mark.namespaces
def test_without_ipv4_the_start_and_the_doctor_say_which_address_to_choose() -> None:
    code, said = tried(f"{ALONE} {PARLEY} serve script --port 8000")
    assert code == 1
    assert "use --host ::1, or :: for every address" in one_sentence(said)
    code, said = tried(f"{ALONE} {PARLEY} doctor -c script --port 8000")
    assert code == 1
    assert re.search(r"fail port: 127\.0\.0\.1 is not an address of this machine\n.*parley serve --host ::1", said), (
        said
    )


@pytest.mark.namespaces
def test_with_ipv6_alone_it_speaks_and_the_doctor_is_content() -> None:
    doctor = f"{PARLEY} doctor -c script --host ::1 --port"
    then = f"{PARLEY} say Hello. --url http://[::1]:8000 -o /dev/null; {doctor} 8000; {doctor} 8001"
    code, said = tried(ALONE + served("script --host ::1", then))
    assert code == 0, said
    assert "s of speech" in said
    assert "a Parley server" in said
    assert "port: [::1]:8001 is free" in said
    assert "ok   UDP" in said


@pytest.mark.namespaces
@pytest.mark.faketime
@pytest.mark.parametrize("years", [-15, 15])
def test_with_a_wrong_clock_it_speaks_and_a_client_says_what_is_wrong(years: int, tmp_path: Path) -> None:
    """The clock is wrong where the server runs, and right where its certificate is looked at."""
    serve = served("script --https auto", f"{PARLEY} say Hello. --url https://127.0.0.1:8000 -o /dev/null || true")
    wrong = serve.replace(PARLEY, FAKED % years + PARLEY, 1)
    code, said = tried(f"ip link set lo up; {wrong}", HOME=str(tmp_path))
    assert code == 0, said
    (refused,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert "check the clocks of both machines" in refused
    again = served("script --https auto", f"{PARLEY} say Hello. --url https://127.0.0.1:8000 -o /dev/null")
    code, said = tried(f"ip link set lo up; {again}", HOME=str(tmp_path))
    assert code == 0, "with the clock right again the certificate is not made anew: " + said


def test_the_doctor_sees_a_clock_that_is_before_the_installation() -> None:
    found = clock(now_s=1e9, installed_s=1.7e9)
    assert (found.level, "2001-09-09" in found.text) == ("warn", True)
    assert clock(now_s=1.7e9, installed_s=1.7e9).level == "ok"


def test_the_doctor_sees_the_bound_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, taken = tmp_path / "memory.max", tmp_path / "memory.current"
    monkeypatch.setattr("app.commands.doctor.CONTROL_GROUPS", ((most, taken),))
    free = free_memory()
    most.write_text("512000000\n")
    taken.write_text("12000000\n")
    assert free_memory() == 500_000_000 < free
    most.write_text("max\n")
    assert free_memory() > 500_000_000
