"""The part of the engine that runs in the server's process: it routes requests and supervises workers. No torch."""
