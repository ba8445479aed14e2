"""One outside thing a file: git, versions, NVML, cgroups, the kernel log, a run directory on disk."""
