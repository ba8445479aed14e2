"""The classic line of memory figures that DeepSpeed's users know, with what changed since the line before.

    after forward
    MA 1.21 GB (+0.40)  Max_MA 1.35 GB  CA 2.0 GB  Max_CA 2 GB  | RSS 1.73 GB (+0.01)
    CPU Virtual Memory: used = 12.4 GB, percent = 9.9%

MA is what torch has allocated on the GPU, CA what it has reserved; RSS is this process's memory on the host. Nothing is
reset, and no garbage collected unless it is asked for: what is measured stays as it is.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_GB = float(1 << 30)
_last: dict[str, float] = {}


def lines(message: str, *, collect: bool) -> str:
    """Three lines. Raises nothing that a machine's lack of a GPU or of /proc could bring."""
    if collect:
        import gc

        gc.collect()
    cuda = _cuda()
    ma, max_ma, ca, max_ca = (
        (0.0, 0.0, 0.0, 0.0)
        if cuda is None
        else tuple(
            f() / _GB
            for f in (
                cuda.memory_allocated,
                cuda.max_memory_allocated,
                cuda.memory_reserved,
                cuda.max_memory_reserved,
            )
        )
    )
    figures = (
        f"MA {ma:.2f} GB{_change('MA', ma)}  Max_MA {max_ma:.2f} GB  "
        f"CA {ca:.2f} GB{_change('CA', ca)}  Max_CA {max_ca:.0f} GB"
    )
    own = rss_bytes()
    host = "RSS unknown" if own is None else f"RSS {own / _GB:.2f} GB{_change('RSS', own / _GB)}"
    return f"{message}\n{figures}  | {host}\n{_virtual()}"


def _cuda() -> Any:  # noqa: ANN401
    """torch.cuda where the script has imported torch and has begun to use a GPU: we do not begin it."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda if cuda is not None and cuda.is_available() and cuda.is_initialized() else None


def _change(name: str, value: float) -> str:
    before, _last[name] = _last.get(name), value
    return "" if before is None or abs(value - before) < 0.005 else f" ({value - before:+.2f})"


def rss_bytes() -> int | None:
    """Of this process; None where there is no /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _virtual() -> str:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":", 1) for line in file)
        total, free = (int(found[key].split()[0]) << 10 for key in ("MemTotal", "MemAvailable"))
    except (OSError, ValueError, KeyError, IndexError):
        return "CPU Virtual Memory: unknown"
    return f"CPU Virtual Memory: used = {(total - free) / _GB:.2f} GB, percent = {100 * (total - free) / total:.1f}%"
