"""The checks of each node before a job starts: one file for each, with `look() -> dict`, standard library.

names.py interfaces.py disk.py limits.py ptrace.py software.py gpus.py   one node by itself
meeting.py                                                              nodes reach each other, clocks
bandwidth.py                                                            a real all-reduce, in a process of its own
probe.py                                                                the program that a carrier starts on each node
"""
