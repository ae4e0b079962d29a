"""The step loop of a worker: schedule, run, hand on."""
