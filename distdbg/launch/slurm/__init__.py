"""Slurm: what an allocation is, the step that runs our agents in it, and the jobs that are submitted for it."""
