"""What a process waited for, by readings of Linux's counters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.ipc.processor_time import OwnClock, ProcessorTime, ThreadTime, processor_time, stolen_s


def reading(at_s: float, *threads: ThreadTime, stolen_s: float = 0.0) -> ProcessorTime:
    return ProcessorTime(at_s, dict(enumerate(threads)), stolen_s)


def test_a_wait_counts_while_it_lasts_and_not_again_when_linux_has_counted_it() -> None:
    began = reading(0.0, ThreadTime(1.0, 2.0, 7, "R"))
    waits = reading(3.0, ThreadTime(1.0, 2.0, 7, "R"))
    ran = reading(3.5, ThreadTime(1.25, 5.25, 8, "S"))
    assert waits.since(began).waited_s == 3.0
    assert ran.since(waits).waited_s == 0.5
    assert ran.since(waits).computed_s == 0.25


@pytest.mark.parametrize(
    "now",
    [
        ThreadTime(2.0, 2.0, 7, "R"),
        ThreadTime(1.0, 2.0, 8, "R"),
        ThreadTime(1.0, 2.0, 7, "S"),
        ThreadTime(1.0, 2.0, 7, "T"),
    ],
    ids=["computed", "had a turn", "sleeps", "is stopped"],
)
def test_a_thread_that_had_a_processor_or_wanted_none_has_not_waited(now: ThreadTime) -> None:
    assert reading(1.0, now).since(reading(0.0, ThreadTime(1.0, 2.0, 7, "R"))).waited_s == 0.0


def test_the_thread_that_waited_longest_counts() -> None:
    began = reading(0.0, ThreadTime(0.0, 0.0, 0, "S"), ThreadTime(0.0, 0.0, 0, "S"))
    later = reading(1.0, ThreadTime(0.0, 0.2, 1, "S"), ThreadTime(0.0, 0.6, 1, "S"), ThreadTime(0.1, 0.1, 1, "S"))
    assert later.since(began).waited_s == 0.6
    assert later.since(began).own_s == 0.4


def test_steal_time_counts_as_waiting_but_never_more_than_the_time_that_passed() -> None:
    assert reading(1.0, stolen_s=9.25).since(reading(0.0, stolen_s=9.0)).waited_s == 0.25
    assert reading(1.0, stolen_s=90.0).since(reading(0.0, stolen_s=9.0)).waited_s == 1.0


def test_a_thread_that_waits_for_a_disk_at_both_readings_has_waited_for_it() -> None:
    thread = ThreadTime(1.0, 2.0, 7, "D")
    assert reading(1.0, thread).since(reading(0.0, thread)).on_disk_s == 1.0
    assert reading(1.0, thread).since(reading(0.0, ThreadTime(1.0, 2.0, 7, "S"))).on_disk_s == 0.0


def test_linux_tells_how_long_a_process_waited_for_a_processor() -> None:
    """Two that would both run all the time on one processor: each of them waits about half of it."""
    burn = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(flush=True)\nwhile True: pass"
    both = [subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for one in both:
            assert one.stdout is not None
            one.stdout.readline()
        before = [_read(one) for one in both]
        time.sleep(0.5)
        assert sum(_read(one).since(was).waited_s for one, was in zip(both, before, strict=True)) > 0.1
        os.kill(both[1].pid, signal.SIGSTOP)
        os.waitpid(both[1].pid, os.WUNTRACED)  # on a busy machine it takes a while until it stands still
        stopped = _read(both[1])
        time.sleep(0.2)
        later = _read(both[1])
        assert [thread.state for thread in later.threads.values()] == ["T"]
        assert later.threads == stopped.threads, "a stopped process waits for no processor"
    finally:
        for one in both:
            one.kill()
            one.communicate()
    assert processor_time(2**22 + 1) is None


def _read(process: subprocess.Popen[bytes]) -> ProcessorTime:
    found = processor_time(process.pid)
    assert found is not None
    return found


def test_a_thread_whose_name_looks_like_a_state_is_read_right(tmp_path: Path) -> None:
    thread = tmp_path / "7" / "task" / "7"
    thread.mkdir(parents=True)
    (thread / "schedstat").write_text("1500000000 250000000 12\n")
    (thread / "stat").write_text("7 (a) S (b) D 1 7 7")
    found = processor_time(7, tmp_path)
    assert found is not None
    assert found.threads == {7: ThreadTime(1.5, 0.25, 12, "D")}


def test_what_a_host_took_from_this_machine_is_told_by_the_system(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  96896 25715 23401 312146 1346 0 436 219 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    assert stolen_s(stat) == 219 / os.sysconf("SC_CLK_TCK")
    stat.write_text("")
    assert stolen_s(stat) == stolen_s(tmp_path / "nothing") == 0.0
    assert 0 <= stolen_s() <= stolen_s()


def test_an_own_clock_stands_still_while_the_process_waits() -> None:
    readings = [reading(0.0, ThreadTime(1.0, 2.0, 7, "R")), reading(8.0, ThreadTime(2.0, 8.0, 8, "R"))]
    assert OwnClock(lambda: readings.pop(0)).lap_s() == 2.0


def test_an_own_clock_counts_all_time_where_waits_are_unknown() -> None:
    times = [5.0, 8.0]
    assert OwnClock(lambda: None, lambda: times.pop(0)).lap_s() == 3.0
