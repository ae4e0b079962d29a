"""llama.cpp's HTTP server for a file: ``python serve_gguf.py MODEL.gguf [SLOTS [CONTEXT [THREADS]]]``.

Writes its address; ends with its input. Each of SLOTS answers at once has CONTEXT tokens.
"""

from __future__ import annotations

import sys

import xllamacpp


def main(model: str, slots: str = "8", context: str = "1024", threads: str = "1") -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.port = 0
    params.n_parallel, params.n_ctx = int(slots), int(slots) * int(context)
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.endpoint_metrics = True
    params.verbosity = -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    params.n_gpu_layers = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
