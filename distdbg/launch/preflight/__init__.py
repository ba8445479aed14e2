"""`distdbg preflight`: runs a probe on every node, and makes evidence of what the probes report.

asking.py    from the options to evidence
conduct.py   leads the probes through their steps: look, meet, reduce
"""
