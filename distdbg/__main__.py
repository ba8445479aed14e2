"""`python -m distdbg` is `distdbg`."""

from distdbg.cli import main

main()
