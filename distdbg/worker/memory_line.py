"""Format the lines of memory figures that DeepSpeed's users know, with the change since the lines before.

    after forward
    MA 1.21 GB (+0.40)  Max_MA 1.35 GB  CA 2.0 GB  Max_CA 2 GB  | RSS 1.73 GB (+0.01)
    CPU Virtual Memory: used = 12.4 GB, percent = 9.9%

MA is what torch has allocated on the GPU, CA what it has reserved; RSS is this process's memory on the host. Nothing is
reset, and garbage is collected only on request.
"""

from __future__ import annotations

from distdbg.worker.memory import figures

_GB = float(1 << 30)
_last: dict[str, float] = {}


def lines(message: str, *, collect: bool) -> str:
    """Three lines. Does not raise on a machine without a GPU or /proc."""
    if collect:
        import gc

        gc.collect()
    found = figures.quick()
    ma, max_ma, ca, max_ca = (found.get(name, 0) / _GB for name in ("MA", "Max_MA", "CA", "Max_CA"))
    device = (
        f"MA {ma:.2f} GB{_change('MA', ma)}  Max_MA {max_ma:.2f} GB  "
        f"CA {ca:.2f} GB{_change('CA', ca)}  Max_CA {max_ca:.0f} GB"
    )
    own = found.get("RSS")
    host = "RSS unknown" if own is None else f"RSS {own / _GB:.2f} GB{_change('RSS', own / _GB)}"
    return f"{message}\n{device}  | {host}\n{_virtual()}"


def _change(name: str, value: float) -> str:
    before, _last[name] = _last.get(name), value
    return "" if before is None or abs(value - before) < 0.005 else f" ({value - before:+.2f})"


def _virtual() -> str:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = dict(line.split(":", 1) for line in file)
        total, free = (int(found[key].split()[0]) << 10 for key in ("MemTotal", "MemAvailable"))
    except (OSError, ValueError, KeyError, IndexError):
        return "CPU Virtual Memory: unknown"
    return f"CPU Virtual Memory: used = {(total - free) / _GB:.2f} GB, percent = {100 * (total - free) / total:.1f}%"
