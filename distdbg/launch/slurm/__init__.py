"""Slurm: what is submitted, how it is followed, and how a running job's nodes are reached."""
