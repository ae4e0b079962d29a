"""The engine in a worker's process: loads stages on a device and steps them in batches."""
