"""Record a rank's memory step by step (`--memory`), and take snapshots: on request, at steps, after out-of-memory.

Off by default, and then nothing of this is loaded. Lines go to the agent over its socket, snapshots as files in
node-local memory, which the agent moves into the run directory. No device is waited for, nothing is reset or collected,
and no tensor is kept alive.
"""
