"""SRC as a person names it: a folder, a config.json."""

from __future__ import annotations

from pathlib import Path

from distdbg.errors import UsageError
from distdbg.shrink.source import Folder, Source


def open_source(name: str) -> Source:
    path = Path(name)
    if path.is_dir():
        return Folder(path)
    if path.is_file():
        return OneConfig(path.parent, config=path.name)
    raise UsageError(f"{name} is no folder and no file here", "Name a model's folder or its config.json.")


class OneConfig(Folder):
    """A config file alone, whatever its name is."""

    def __init__(self, path: Path, config: str) -> None:
        super().__init__(path)
        self.config = config
        self._known = ["config.json"]
        self.where = str(path / config)

    def small(self, name: str) -> bytes | None:
        if name != "config.json":
            return None
        return super().small_at(self.config)
