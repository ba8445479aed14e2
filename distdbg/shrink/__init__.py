"""Make a model small, faithfully: configs probed, checkpoints sliced by byte ranges, the result verified.

Two halves. What reads and writes checkpoints knows names and byte ranges only, and never imports torch. What knows
models (`probe/`, `verify/`) runs in a child process, on torch's meta device.
"""
