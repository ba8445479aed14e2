"""The form of what a node's probe reports (distdbg/collect/preflight/). Anything else is unknown."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

_MAYBE_INT = (int, None)
_GPU = {
    "index": int, "name": (str, None), "bus_id": (str, None), "instances": [{...: object}], "memory_total": _MAYBE_INT,
    "memory_used": _MAYBE_INT, "temperature": _MAYBE_INT, "throttle": ([str], None), "ecc_uncorrected": _MAYBE_INT,
    "processes": ([{"pid?": int, "memory_used?": _MAYBE_INT, "user?": str, "command?": str}], None),
    "nvlinks": _MAYBE_INT, "unknown": {...: str},
}  # fmt: skip
_OF = frozenset({"runs", "shared memory", "temporary files"})
_PLACE = (
    {"of": _OF, "path": str, "because": str, "free": int, "total": int, "inodes_free": int, "inodes": int},
    {"of": _OF, "path": str, "because": re.compile(".", re.DOTALL)},
)
_INTERFACE = {"name": str, "up": bool, "loopback": bool, "mtu": _MAYBE_INT, "addresses": [str]}
_LIMITS = {name: [int, int] for name in ("nofile", "memlock", "nproc", "core")}
#: Of each look. A key with ? may be missing, `...` stands for any key, a tuple has what it may be, a list of one item
#: any number of them, a pattern or a set says which text.
LOOKS: dict[str, Any] = {
    "port": {"wanted": int, "got": int, "because": str},
    "names": {"hostname": str, "identity": str, "ranks": {...: str}, "allocation": str, "addresses": [str],
              "because": str},
    "interfaces": {"told": {...: str}, "interfaces": [_INTERFACE]},
    "disk": {"places": [_PLACE], "sees_token?": (bool, None)},
    "limits": {"limits": _LIMITS, "rdma": [str], "root": bool},
    "ptrace": {"pyspy": bool, "ptrace": bool, "because": str},
    "software": {"versions": {...: str}, "git": {...: (str, bool, None)}, "environment": {...: str}, "python": str},
    "gpus": {"gpus": [_GPU], "absent": str, "xids": [[str, int, str]], "xids_because": str},
}  # fmt: skip
_ATTEMPT = {"ok": bool, "address": str, "because?": str, "answered_by?": str, "resolved?": [str], "source?": str,
            "rtt?": float, "offset?": float}  # fmt: skip
MET = ({"to": str, "by_name": (_ATTEMPT, None), "by_address": _ATTEMPT}, {"to": str, "unknown": str})
REDUCED = (
    {"ok": bool, "all_reduce_s": float, "bytes": int, "pairs": {...: [float]}, "backend": str},
    {"unknown": str},
    None,
)
_MOST = 2**63


def fits(value: object, shape: Any) -> bool:  # noqa: ANN401, PLR0911 -- one line a kind of shape
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, list):
        fitting = isinstance(value, list) and len(shape) in (1, len(value))
        return fitting and all(map(fits, value, itertools.cycle(shape)))  # type: ignore[call-overload]
    if isinstance(shape, dict):
        return isinstance(value, dict) and _fits_object(value, shape)
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.search(value) is not None
    if isinstance(shape, frozenset):
        return isinstance(value, str) and value in shape
    if shape is None or shape is object:
        return shape is object or value is None
    if shape is float:
        return type(value) in (int, float) and math.isfinite(value) and abs(value) < _MOST  # type: ignore[arg-type]
    return type(value) is shape and (shape is not int or -_MOST <= value < _MOST)  # type: ignore[operator]


def _fits_object(value: dict[str, Any], shape: dict[Any, Any]) -> bool:
    if ... in shape:
        return all(fits(inner, shape[...]) for inner in value.values())
    for name, inner in shape.items():
        key = name.removesuffix("?")
        if not (fits(value[key], inner) if key in value else name != key):
            return False
    return True
