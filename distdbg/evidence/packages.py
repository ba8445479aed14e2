"""Names for files: whose code it is, and a short name that is still one file's alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

_INSTALLED = re.compile(r".*/(?:site|dist)-packages/([^/]+)")
_STANDARD = re.compile(r".*/lib(?:64)?/python\d[^/]*/(?:lib-dynload/)?([^/]+)")


@lru_cache(maxsize=4096)
def package_of(file: str) -> str:
    """`torch` of `…/site-packages/torch/_tensor.py`, `threading` of the standard library's."""
    found = _INSTALLED.match(file) or _STANDARD.match(file)
    name = found[1] if found else file.strip("<>").rpartition("/")[2] or "C"
    name = name.removeprefix("frozen ").partition(".")[0] if not found or name.endswith((".py", ".so")) else name
    return name.partition(".")[0] or "C"


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
