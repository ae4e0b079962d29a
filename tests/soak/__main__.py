"""The long soak: users at half of what this machine carries, faults on purpose, and a report written as it goes.

    python -m tests.soak start [FOLDER] --minutes 60    in the background; a soak that was stopped goes on
    python -m tests.soak run [FOLDER] --minutes 60      in the foreground; ends with 1 if a bar was missed
    python -m tests.soak status [FOLDER]                whether one is running, and the verdict so far
    python -m tests.soak stop [FOLDER]

``make soak MINUTES=60`` is the first of these. FOLDER (``out/soak``) holds the report (``report.md``, with plots), what
it is made of (``journal.jsonl``), and the processes' own words (``log``, ``server.log``). ``--users`` is how many come
at once, where half of a measured capacity is not wanted, ``--callers`` how many of them call (a quarter, without it);
``--kill-every`` the seconds from one killed worker to the next, 0 for none; ``--config`` another deployment, and
``--open`` open questions, as for `--config starter --open --kill-every 0`; ``--settled`` the minutes that slopes leave
out; ``--niceness`` a priority before the other work of a machine that is not the soak's alone (-12, as root).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from app.bench.target import BenchError
from tests.soak import journal, keeper
from tests.soak.keeper import KILL_EVERY_S, Plan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("start", "run", "status", "stop"):
        command = commands.add_parser(name)
        command.add_argument("folder", nargs="?", type=Path, default=Path("out/soak"))
        command.add_argument("--minutes", type=float, default=60.0)
        command.add_argument("--users", type=int)
        command.add_argument("--callers", type=int)
        command.add_argument("--niceness", type=int, default=0)
        command.add_argument("--kill-every", type=float, default=KILL_EVERY_S)
        command.add_argument("--settled", type=float, default=10.0)
        command.add_argument("--config", default=str(keeper.CONFIG))
        command.add_argument("--open", action="store_true")
    command = commands.add_parser("users")
    command.add_argument("url")
    command.add_argument("journal", type=Path)
    for name, kind in (("life", int), ("users", int), ("callers", int), ("seconds", float)):
        command.add_argument(f"--{name}", type=kind, required=True)
    command.add_argument("--chorus", action="store_true")
    command.add_argument("--open", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "users":
        return _users(arguments)
    return {"start": _start, "run": _run, "status": _status, "stop": _stop}[arguments.command](arguments)


def _users(arguments: argparse.Namespace) -> int:
    from engine.aio.event_loop import run  # what only the users need takes a while to load
    from tests.soak.users import Crowd, chorus, users

    with journal.Journal(arguments.journal) as to:
        if arguments.chorus:
            run(chorus(arguments.url, arguments.life, to))
        crowd = Crowd(arguments.users, arguments.callers, arguments.open)
        run(users(arguments.url, crowd, arguments.seconds, arguments.life, to))
    return 0


def _run(arguments: argparse.Namespace) -> int:
    names = "folder", "minutes", "users", "callers", "kill_every", "settled", "niceness", "config", "open"
    plan = Plan(*(getattr(arguments, name) for name in names))
    try:
        return int(not keeper.soak(plan))
    except (keeper.Busy, BenchError) as error:
        print(error, file=sys.stderr)
        return 2


def _start(arguments: argparse.Namespace) -> int:
    """Run it in a session of its own, which outlives the terminal."""
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    if (pid := keeper.running_in(folder)) is not None:
        print(f"A soak is running in {folder} (process {pid}); its report is {folder}/report.md.")
        return 0
    command = [sys.executable, "-m", "tests.soak", "run", *sys.argv[2:]]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    print(f"The soak runs in the background (process {process.pid}); each minute it writes {folder}/report.md.")
    print(f"Stop it with: python -m tests.soak stop {folder}. The same command again makes it go on.")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    pid = keeper.running_in(arguments.folder)
    print(f"running (process {pid})" if pid is not None else "not running")
    report = arguments.folder / "report.md"
    print(report.read_text(encoding="utf-8").partition("![")[0] if report.exists() else "no report yet")
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    if (pid := keeper.running_in(arguments.folder)) is not None:
        os.kill(pid, signal.SIGTERM)
    return 0


if __name__ == "__main__":
    sys.exit(main())
