"""Run torch.profiler over some steps of a rank: those of `--profile`, or the next ones for `distdbg profile`.

Off by default, and then nothing of this is loaded. Before the first of those steps and after the last one nothing
listens. The only cost is that of the profiler, in those steps; a separate thread writes the file in node-local memory,
and the agent moves it into the run directory.
"""
