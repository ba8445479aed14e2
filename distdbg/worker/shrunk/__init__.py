"""Make a model smaller while an unmodified script runs: `distdbg launch --keep-layers N --skip-attention …`.

Nothing of this is loaded unless requested. It changes the computation, so the launcher, every report and a file beside
every checkpoint say so.
"""
