"""Slurm: what an allocation is, the step that runs our agents in it, and batch jobs: submitted, followed, reached."""
