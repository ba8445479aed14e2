"""Launch a job: agents start torchrun on each node and watch its ranks.

Imports point down this list:

run.py, attach.py, hang_dump.py, preflight.py   one launch, following a run, a dump on request, probes before a job
backends/    how agents get onto nodes
agent/       one node: torchrun, its ranks' streams, samples and files
watch/       the launcher's detection of stalls and stragglers, and dumps
live/        the terminal during a run
plan/        job to arguments, environment and topology
link/        the connection between launcher and agents
io/          processes, event loop, and writes that cannot block
"""
