"""The gates of tests/guard go red when they should: each negative control runs a test that breaks one of them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest

pytest_plugins = ["pytester"]
GUARD = Path(__file__).parent / "guard"

HEAD = """
import asyncio, atexit, multiprocessing.shared_memory, socket, subprocess, sys, threading, time
import pytest
kept = []
"""

BROKEN = """
import gates
gates.GRACE_S = 0.2  # what is left behind here stays, however long the gates wait

async def test_tasks():
    kept.append(asyncio.create_task(asyncio.sleep(60), name="forgotten"))

def test_threads():
    threading.Thread(target=time.sleep, args=(5,), daemon=True).start()

def test_processes():
    kept.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(5)"]))

def test_listening_sockets():
    kept.append(socket.create_server(("127.0.0.1", 0)))

def test_shared_memory():
    kept.append(multiprocessing.shared_memory.SharedMemory(create=True, size=8))
    atexit.register(kept[-1].unlink)  # else a helper does, seconds later where others have the processors
"""

LEAVING = """
import gates
gates.GRACE_S = 0.2  # a refused socket lives on in the error that says so

def test_connection():
    socket.socket().connect(("192.0.2.1", 80))

def test_connection_by_ipv6():
    socket.socket(socket.AF_INET6).connect(("2001:db8::1", 80))

def test_datagram():
    socket.socket(type=socket.SOCK_DGRAM).sendto(b"", ("192.0.2.1", 80))

def test_lookup():
    socket.getaddrinfo("example.invalid", 80)
"""

HIDDEN = """
def test_swallowed():
    with pytest.raises(RuntimeError):
        socket.getaddrinfo("example.invalid", 80)

def test_child():
    child = "import socket; socket.create_connection(('192.0.2.1', 80))"
    assert subprocess.run([sys.executable, "-c", child]).returncode == 1
"""

CLEAN = """
async def test_everything_at_home():
    await asyncio.create_task(asyncio.sleep(0))
    await asyncio.to_thread(time.sleep, 0)
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "localhost", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    assert await reader.read() == b""
    writer.close()
    server.close()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
"""

MEASURING = """
import gates, itertools
shares = itertools.chain([90.0] * gates.LOOKS_FOR_IDLE, [90.0, 5.0])
gates.psutil.cpu_percent = lambda seconds: next(shares)

@pytest.mark.bench
def test_time_on_a_busy_machine():
    raise AssertionError

@pytest.mark.bench
def test_time_once_it_is_idle():
    pass

def test_something_else():
    pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], pytest.RunResult]:
    """Run some tests, behind the gates, in a pytest of their own."""

    def run_inside(tests: str) -> pytest.RunResult:
        monkeypatch.setenv("PYTHONPATH", str(GUARD))
        pytester.makepyfile(HEAD + tests)
        pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
        return pytester.runpytest_subprocess("-p", "gates", "-p", "no:cacheprovider", "--tb=short")

    return run_inside


@pytest.mark.slow
def test_what_is_left_behind_turns_the_gates_red(run: Callable[[str], pytest.RunResult]) -> None:
    result = run(BROKEN)
    result.assert_outcomes(passed=5, errors=5)
    for what in ("tasks: forgotten", "threads", "processes", "listening sockets: 127.0.0.1:", "shared memory: psm_"):
        result.stdout.fnmatch_lines_random([f"*left behind {what}*"])


@pytest.mark.slow
def test_leaving_the_machine_is_refused(run: Callable[[str], pytest.RunResult]) -> None:
    result = run(LEAVING)
    result.assert_outcomes(failed=4, errors=4)
    for what in ("192.0.2.1", "2001:db8::1", "socket.sendto", "example.invalid"):
        result.stdout.fnmatch_lines_random([f"*{what}*would leave this machine*"])


@pytest.mark.slow
def test_a_swallowed_refusal_and_a_childs_fail_the_test_all_the_same(run: Callable[[str], pytest.RunResult]) -> None:
    result = run(HIDDEN)
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines_random(["*tried to leave this machine: socket.*"])


@pytest.mark.slow
def test_what_stays_at_home_passes(run: Callable[[str], pytest.RunResult]) -> None:
    run(CLEAN).assert_outcomes(passed=1)


def test_what_measures_time_needs_an_idle_machine(run: Callable[[str], pytest.RunResult]) -> None:
    run(MEASURING).assert_outcomes(passed=2, skipped=1)


async def test_asyncio_s_debug_mode_is_on_and_keeps_a_few_frames() -> None:
    """Of a future it kept the whole stack, which took a third of what the app's tests did."""
    loop = asyncio.get_running_loop()
    assert loop.get_debug()
    future: Any = loop.create_future()
    assert 1 <= len(future._source_traceback) <= 2


def test_a_client_reads_one_authority_s_certificate() -> None:
    """The machine's own took longer to read than many a test with a client took otherwise."""
    for made in (httpx.create_ssl_context, httpx2.create_ssl_context):
        assert made().cert_store_stats()["x509_ca"] == 1


def test_what_was_imported_is_no_matter_for_the_collector() -> None:
    """With all tests' imports it held up whichever test it fell into for half a second."""
    assert gc.isenabled()
    assert gc.get_freeze_count() > 50_000


def test_where_processes_share_the_tests_out_the_longest_come_first(request: pytest.FixtureRequest) -> None:
    plugins = request.config.pluginmanager.get_plugins()
    (shared,) = [one for one in plugins if getattr(one, "__file__", "") == str(Path(__file__).with_name("conftest.py"))]
    assert all((Path(__file__).parents[1] / folder).is_dir() for folder in shared.FIRST)
    names = [
        "tests/app/test_a.py::b",
        "tests/engine/worker/nn/test_c.py::d",
        "tests/web/test_e.py::f",
        "tests/test_g.py::h",
    ]
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in names]
    config: Any = SimpleNamespace(workerinput={}, option=SimpleNamespace(markexpr="not soak"), args=[])
    shared.pytest_collection_modifyitems(config, items)
    assert [one.nodeid for one in items] == [names[1], names[2], names[0], names[3]]
