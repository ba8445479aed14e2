"""List every file below a folder. Links are not followed; what was skipped is recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from distdbg.errors import EvidenceUnreadable

#: Files of one folder: ten of each rank of a large job. Reading the first bytes of so many takes some 10 s.
MOST_FILES = 200_000


class FolderFiles:
    """Iterates over the files, sorted by name within each folder; then `unread` has (what, why) of the rest."""

    def __init__(
        self, folder: Path, endings: tuple[str, ...] = ("",), enters: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._folder, self._endings, self._enters = folder, endings, enters
        self.unread: list[tuple[str, str]] = []

    def __iter__(self) -> Iterator[Path]:
        self.unread, count = [], 0
        waiting = [str(self._folder)]
        while waiting:  # no recursion: folders may be nested deeper than Python's stack
            files, folders = self._listed(waiting.pop(), MOST_FILES - count)
            count += len(files)
            yield from map(Path, sorted(files))
            waiting += sorted(folders, reverse=True)
            if count >= MOST_FILES:
                self.unread.append((f"the rest of {self._folder}", f"it holds more than {MOST_FILES:,} files"))
                return

    def named(self) -> Iterator[tuple[Path, str]]:
        """Each file with the name that citations use."""
        return ((file, f"{self._folder}/{file.relative_to(self._folder).as_posix()}") for file in self)

    def _listed(self, folder: str, most: int) -> tuple[list[str], list[str]]:
        """(at most `most` files, folders) in one folder."""
        files: list[str] = []
        folders: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders += [entry.path] if self._enters(entry.name) else []
                    elif _links_to_folder(entry):
                        if self._enters(entry.name):
                            self.unread.append((entry.path, "it is a link to a folder, and links are not followed"))
                    elif entry.name.endswith(self._endings):
                        files.append(entry.path)
                        if len(files) >= most:
                            break
        except OSError as error:
            self.unread.append((folder, error.strerror or "it cannot be listed"))
        return files, folders


def nothing_read(unread: Sequence[tuple[str, str]], remedy: str) -> EvidenceUnreadable:
    """The error of a command that cannot use any of its files; `unread` are (name, why)."""
    name, why = unread[0]
    more = f" (nor {len(unread) - 1} more)" if len(unread) > 1 else ""
    return EvidenceUnreadable(f"{name!r} cannot be read: {why}{more}", remedy)


def _links_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_symlink() and entry.is_dir()
    except OSError:  # a link to itself: whoever reads the file says so
        return False
