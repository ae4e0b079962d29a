"""The step loop of a worker: schedule, step, pass results on.

Terms:

- step: one call of a stage's ``step``, with a batch of requests.
- slot: the place of one request in a stage's state, such as its KV cache.
- run: a request's way through the stages of this worker.
- role: one of the parallel computations of a request at a stage: "main", or a companion for guidance.
"""
