"""Where a tensor is moved to, as far as the call says."""

from __future__ import annotations

import ast
import re

_DEVICE = re.compile(r"(?:^|_)(?:device|dev|rank|gpu|cuda)(?:_|$|:|\d)", re.IGNORECASE)


def to_gpu(call: ast.Call) -> bool:
    """`.cuda()`, `.to("cuda:0")`, `.to(device)`: what is called a device is taken for a GPU."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
        return True
    given = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "device"), None)
    match given:
        case ast.Constant(value=str(name)):
            return name.startswith("cuda")
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _DEVICE.search(name) is not None
    return False
