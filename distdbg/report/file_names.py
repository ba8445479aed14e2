"""Shorten file paths to unique names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def short_names(files: Iterable[str]) -> dict[str, str]:
    """Each file's last parts, as many as tell it from the others."""
    names: dict[str, str] = {}
    todo = dict.fromkeys(files, 1)
    while todo:
        tails = {file: "/".join(file.split("/")[-count:]) for file, count in todo.items()}
        seen = Counter(tails.values())
        for file, tail in tails.items():
            if seen[tail] == 1 or todo[file] > file.count("/"):
                names[file] = tail
                del todo[file]
            else:
                todo[file] += 1
    return names
