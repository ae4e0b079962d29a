"""The life of a worker's process: start, join, heartbeat, watchdog."""
