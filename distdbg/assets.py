"""Find the command's own file, and those that ship beside the package: scripts, presets, messages, templates, guards.

In a wheel these lie in `distdbg/_assets`; in a checkout they are the top folders of the repository, but for the last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

Folder = Literal["launch", "configs", "slurm", "guards"]
#: Where it is elsewhere than at the top: what the tests run is what `distdbg guards --selftest` runs.
_IN_CHECKOUT = {"guards": "tests/programs/guards"}
#: `python MAIN` is `distdbg`. `python -m distdbg` would search the working directory for every module first.
MAIN = Path(__file__).resolve().with_name("__main__.py")


def asset_dir(folder: Folder) -> Path:
    """The folder on disk; in a checkout and an editable install the repository's own."""
    package = Path(__file__).resolve().parent
    shipped = package / "_assets" / folder
    return shipped if shipped.is_dir() else package.parent / _IN_CHECKOUT.get(folder, folder)
