"""`distdbg preflight`: probes carried to every node, led through their steps, and what they say made into evidence.

carriers.py  which nodes, and the command line that starts a probe on each: here, by ssh, by srun
conduct.py   leads the probes: look, meet, reduce
cheap.py     the half that costs next to nothing, for `launch`
"""
