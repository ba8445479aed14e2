"""From a job to running ranks: torchrun, the node agent, signals, exit codes, restarts."""
