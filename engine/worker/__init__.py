"""The part of the engine that runs in a worker's process: it loads stages on a device and steps them in batches."""
