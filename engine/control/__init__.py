"""The part of the engine that runs in the server's process: it routes requests and supervises workers. No torch.

Terms:

- worker: a process that hosts neighbouring stages on one device. Each restart is a new incarnation of it.
- replica: one stage on one worker.
- lease: a request's hold on slots of a replica.
- hop: a request's way through neighbouring stages on one worker. A run is one attempt of a hop.
- commit: the end of the user's turn. From then on the listener waits for the answer.
"""
