"""Report the versions and the script of this rank; the rule compares the ranks."""

from __future__ import annotations

import sys

from distdbg.worker.guards.shared.base import Guard

#: What changes numbers, checkpoints or how ranks talk to each other.
_NAMES = ("torch", "numpy", "transformers", "accelerate", "lightning", "deepspeed", "flash_attn", "triton", "datasets")


class VersionsDiffer(Guard):
    id = "versions-differ"
    costs = "once, about 100 us"
    blind = "packages that are imported later than the first step; the script's own modules"

    def window(self) -> None:
        if not self.context.distributed():
            return
        versions = {"python": ".".join(map(str, sys.version_info[:3]))}
        for name in _NAMES:
            version = getattr(sys.modules.get(name), "__version__", None)
            if version is not None:
                versions[name] = str(version)
        script = _checksum(getattr(sys.modules["__main__"], "__file__", None))
        if script is not None:
            versions["the script"] = script
        self.report(None, versions=versions)


def _checksum(path: str | None) -> str | None:
    from zlib import crc32

    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return f"checksum {crc32(file.read(4 << 20)):08x}"
    except OSError:
        return None
