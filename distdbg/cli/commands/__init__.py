"""The commands, one file each: the folder is the list (distdbg/cli/__init__.py)."""
