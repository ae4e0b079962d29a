"""The step loop of a worker: schedule, step, pass results on."""
