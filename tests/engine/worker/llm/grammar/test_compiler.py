"""Schemas are compiled in a process with limits; one that exceeds them is refused, and harms no other request."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import psutil
import pytest

from engine.errors import SchemaError
from engine.ipc.helper import Helper
from engine.worker.llm.grammar.compiler import MOST_KNOWN, GrammarCompiler
from engine.worker.llm.grammar.jobs import AnswerJob, CallJob, receive_result, send_job
from engine.worker.llm.grammar.schema import call_grammar, json_grammar
from tests.engine.fakes import until
from tests.engine.worker.llm.grammar.schemas import DIGIT, WORD, obj

PERSON = obj(name=WORD, age=DIGIT)


def answer(schema: Any) -> AnswerJob:
    return AnswerJob(msgspec.json.encode(schema))


@pytest.fixture
async def compiler() -> AsyncGenerator[GrammarCompiler]:
    one = GrammarCompiler()
    yield one
    await one.aclose()
    await one.aclose()


def helper(compiler: GrammarCompiler) -> Helper:
    found = compiler._helper  # pyright: ignore[reportPrivateUsage]
    assert found is not None
    return found


async def stopped(compiler: GrammarCompiler) -> Helper:
    """Return the process, which does not answer any longer."""
    await compiler.compiled(answer(DIGIT))
    found = helper(compiler)
    os.kill(found.pid, signal.SIGSTOP)
    return found


async def begun(compiler: GrammarCompiler, schema: Any) -> asyncio.Task[str]:
    """Return a task whose job the stopped process has."""
    one: Any = helper(compiler)
    has_begun = threading.Event()
    exchange = one.exchange

    def noted(*args: Any) -> Any:
        has_begun.set()
        return exchange(*args)

    one.exchange = noted
    task = asyncio.create_task(compiler.compiled(answer(schema)))
    await asyncio.to_thread(has_begun.wait)
    return task


async def test_the_process_compiles_as_this_one_does(compiler: GrammarCompiler) -> None:
    assert await compiler.compiled(answer(PERSON)) == json_grammar(PERSON)
    functions = [("timer", PERSON)]
    assert await compiler.compiled(CallJob(msgspec.json.encode(functions))) == call_grammar(functions)


async def test_a_schema_that_is_refused_has_its_reason_and_costs_no_process(compiler: GrammarCompiler) -> None:
    await compiler.compiled(answer(DIGIT))
    before = helper(compiler).pid
    with pytest.raises(SchemaError, match=r"^JSON schema, \$\.not: is not supported"):
        await compiler.compiled(answer({"not": DIGIT}))
    assert await compiler.compiled(answer(PERSON)) == json_grammar(PERSON)
    assert helper(compiler).pid == before


async def test_a_killed_process_is_one_refusal_and_is_replaced(compiler: GrammarCompiler) -> None:
    before = await stopped(compiler)
    refused = await begun(compiler, PERSON)
    following = asyncio.create_task(compiler.compiled(answer(WORD)))
    os.kill(before.pid, signal.SIGKILL)
    with pytest.raises(SchemaError, match=r"takes too much time or memory to compile\. Use fewer properties"):
        await refused
    assert await following == json_grammar(WORD)
    assert helper(compiler).pid != before.pid


async def test_a_process_that_ended_between_two_jobs_is_replaced(compiler: GrammarCompiler) -> None:
    before = await stopped(compiler)
    os.kill(before.pid, signal.SIGKILL)
    await until(lambda: not before.alive, 10_000)
    assert await compiler.compiled(answer(PERSON)) == json_grammar(PERSON)


async def test_a_process_that_cannot_start_is_one_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Helper:
        raise OSError("no memory for another process")

    compiler = GrammarCompiler(fails)
    with pytest.raises(SchemaError, match="takes too much time or memory"):
        await compiler.compiled(answer(DIGIT))
    await compiler.aclose()


async def test_a_job_beyond_its_wall_time_is_killed(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await stopped(compiler)
    monkeypatch.setattr("engine.worker.llm.grammar.compiler.LIMIT_S", 0.05)
    with pytest.raises(SchemaError, match="takes too much time or memory"):
        await compiler.compiled(answer(PERSON))
    assert not before.alive


async def test_a_job_whose_client_left_does_not_hold_the_next_one(compiler: GrammarCompiler) -> None:
    before = await stopped(compiler)
    leaving = await begun(compiler, PERSON)
    leaving.cancel()
    assert await compiler.compiled(answer(WORD)) == json_grammar(WORD)
    assert not before.alive


async def test_the_last_grammars_need_no_process(compiler: GrammarCompiler) -> None:
    consts = [answer({"const": n}) for n in range(MOST_KNOWN + 1)]
    for one in consts:
        await compiler.compiled(one)
    await stopped(compiler)
    assert await compiler.compiled(consts[-1]) == json_grammar({"const": MOST_KNOWN})
    assert len(compiler._known) == MOST_KNOWN  # pyright: ignore[reportPrivateUsage]


async def test_closing_ends_a_running_job() -> None:
    compiler = GrammarCompiler()
    before = await stopped(compiler)
    asking = [await begun(compiler, PERSON), asyncio.create_task(compiler.compiled(answer(WORD)))]
    await asyncio.sleep(0)
    await compiler.aclose()
    for one in await asyncio.gather(*asking, return_exceptions=True):
        assert isinstance(one, SchemaError | asyncio.CancelledError)
    assert not psutil.pid_exists(before.pid)


LIMITED = """
import os, sys
from engine.worker.llm.grammar import compiler_process, jobs
def hostile(self):
    {hostile}
jobs.CallJob.run = hostile
compiler_process.MEMORY_BYTES = 100_000_000
compiler_process.CPU_S = 0.1
sys.argv[1:] = [str(os.getppid())]
compiler_process.main()
"""


def ended(hostile: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Return a compiler process whose calls do something hostile, after it received one."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([sys.executable, "-c", LIMITED.format(hostile=hostile)], stdin=theirs.fileno())
    send_job(ours, CallJob(b"[]"))
    return process, ours


def test_the_system_ends_a_process_beyond_its_cpu_time() -> None:
    process, connection = ended("while True: pass")
    with connection, pytest.raises(EOFError):
        receive_result(connection)
    assert process.wait(20) == -signal.SIGXCPU


@pytest.mark.skipif(sys.platform != "linux", reason="macOS ignores RLIMIT_AS")
@pytest.mark.parametrize("hostile", ["return 'x' * 400_000_000", "raise RecursionError"])
def test_a_job_beyond_its_memory_is_an_error_and_the_next_one_is_served(hostile: str) -> None:
    process, connection = ended(hostile)
    with connection:
        with pytest.raises(SchemaError, match="takes too much time or memory"):
            receive_result(connection)
        send_job(connection, answer(DIGIT))
        assert receive_result(connection) == json_grammar(DIGIT)
    assert process.wait(20) == 0, "it ends with its socket"


@pytest.mark.parametrize("message", [b"\xff" * 12, b"\1\0\0\0" + bytes(8) + b"\xc1", b""])
def test_a_message_that_is_no_result_counts_as_an_end(message: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(message)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            receive_result(ours)
