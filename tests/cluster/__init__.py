"""A cluster in a box: hosts of their own on one machine, with or without real Slurm, and the means to break them.

    bed.py      the whole: hosts on one wire, up and down, faults
    host.py     one host: its namespaces, and how a command gets into them
    slurm.py    real slurmctld, slurmd and munged on the hosts
    keeper.py   takes a bed down when whoever made it dies, however it dies
    fixtures.py what tests ask for
    __main__.py the same for a person: python -m tests.cluster up|exec|cut|heal|down

Needs root and Linux: network, PID, UTS, IPC and mount namespaces, veth pairs on a bridge in a namespace of its own.
The machine's own network and mounts are never touched.
"""
