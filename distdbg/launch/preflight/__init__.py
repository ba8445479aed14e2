"""`distdbg preflight`: probes carried to every node, led through their steps, and what they say made into evidence.

carriers.py  what was asked for, and the command line of a probe; the backends say what runs it on each node
conduct.py   leads the probes: look, meet, reduce
cheap.py     the half that costs next to nothing, for `launch`
"""
