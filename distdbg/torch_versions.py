"""What differs between versions of torch: the table configs/torch-versions.yaml. No other module compares versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import yaml

from distdbg.assets import asset_dir


@dataclass(frozen=True)
class TorchFact:
    """It holds from version `first` to `last` of torch, "" for no bound. `replaces` is the older name of a variable."""

    source: str
    first: str = ""
    last: str = ""
    replaces: str = ""

    def holds(self, torch_version: str | None) -> bool:
        """Return whether it holds in this version; without one, whether it holds in the newest."""
        if torch_version is None:
            return not self.last
        version = _numbers(torch_version)
        return _numbers(self.first) <= version and (not self.last or version <= _numbers(self.last))


@cache
def torch_facts() -> dict[str, TorchFact]:
    text = (asset_dir("configs") / "torch-versions.yaml").read_text(encoding="utf-8")
    return {
        name: TorchFact(**row) for name, row in yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)).items()
    }


@cache
def newer_names() -> dict[str, str]:
    """The names that replace a variable of torch, by the older name."""
    return {fact.replaces: name for name, fact in torch_facts().items() if fact.replaces}


def _numbers(version: str) -> tuple[int, ...]:
    """Major and minor number; empty, and so below all, if the text is not a version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
