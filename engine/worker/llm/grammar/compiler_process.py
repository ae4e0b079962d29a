"""The compiler process: compiles one schema after another within limits of memory and CPU time.

``GrammarCompiler`` starts it as ``python -m parley_voice.engine.worker.llm.grammar.compiler_process``.
"""

from __future__ import annotations

import os
import socket

from engine.errors import SchemaError
from engine.ipc import helper_process, process_limits
from engine.worker.llm.grammar.jobs import TOO_COSTLY, Job, receive_job, send_result

CPU_S = 2.0
"""CPU time of a job. The limits of grammars keep every schema below half a second."""
MEMORY_BYTES = 256 << 20
"""Address space that compiling may add."""
NICENESS = 5
"""Its priority is lower than that of the model, whose tokens are due."""


def main() -> None:
    """Serve jobs until the worker closes the socket."""
    os.nice(NICENESS)
    helper_process.serve(MEMORY_BYTES, _serve_one)


def _serve_one(connection: socket.socket) -> bool:
    job = receive_job(connection)
    if job is None:
        return False
    process_limits.limit_cpu(CPU_S)
    send_result(connection, _done(job))
    return True


def _done(job: Job) -> str | SchemaError:
    try:
        return job.run()
    except SchemaError as error:
        return error
    except (MemoryError, RecursionError):
        return SchemaError(TOO_COSTLY)


if __name__ == "__main__":
    main()
