"""The engine in the server's process: routes requests and supervises workers, without torch."""
