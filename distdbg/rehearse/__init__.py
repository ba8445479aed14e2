"""Run a job of many GPUs on a machine without one: simulated devices, and what a run on them shows."""
