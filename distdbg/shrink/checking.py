"""Check a small model: its layers while its weights are written, and then the files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.errors import Refused
from distdbg.shrink.asking import ask, tell
from distdbg.shrink.checkpoint.config_file import CONFIG, code_and_config, read_config
from distdbg.shrink.checkpoint.config_leaves import narrower
from distdbg.shrink.checkpoint.slicing import Piece
from distdbg.shrink.checkpoint.source import CheckpointSource
from distdbg.shrink.checkpoint.weights_check import compared
from distdbg.shrink.tokenizer import lay_out_tokenizer
from distdbg.whole_file import write_whole


@contextmanager
def begun(source: CheckpointSource, folder: Path, probe: Mapping[str, Any], *, trust: bool) -> Iterator[BegunChecks]:
    """The small model's config is in `folder`; its weights may follow."""
    with tempfile.TemporaryDirectory(prefix="distdbg-shrink-") as full:
        code_and_config(source, Path(full), trust=trust)
        vocabulary = [one for one in probe["narrowed"] if one["axis"] == "vocab" and one["rows"]]
        if vocabulary:
            lay_out_tokenizer(source, Path(full))
        write_whole(Path(full) / CONFIG, json.dumps(narrower(read_config(source), probe)))
        found = BegunChecks(source, folder, probe, full, vocabulary, trust)
        tell("layers", **found.layers())
        yield found


@dataclass(frozen=True)
class BegunChecks:
    """full: a folder with the config of the model whose layers the small one has. vocabulary: how it was cut."""

    source: CheckpointSource
    folder: Path
    probe: Mapping[str, Any]
    full: str
    vocabulary: Sequence[Mapping[str, Any]]
    trust: bool

    def layers(self) -> dict[str, Any]:
        """What the checks of the layers need to know."""
        return {"full": self.full, "small": str(self.folder), "trust": self.trust, "stacks": self.probe["stacks"],
                "entries": self.probe["entries"]}  # fmt: skip

    def verified(self, taken: Sequence[Piece], *, everything: bool, smoke: bool) -> dict[str, str]:
        """Check -> what it says. Raises Refused where one fails: then nothing is left at the destination."""
        pickled = self.probe.get("pickled", {})
        found: dict[str, str] = ask(
            "verify",
            **self.layers(),
            everything=everything,
            tied=self.probe["tied"],
            tokens=self.vocabulary[0]["rows"] if self.vocabulary else [],
            rows=int(self.vocabulary[0]["from"]) if self.vocabulary else 0,
            origins=pickled.get("origins") or {piece.name: piece.source.name for piece in taken},
            sources=sorted(self.probe["modules"]) or pickled.get("sources", []),
            cuts=self.probe["cuts"],
            smoke=smoke,
        )
        if taken:
            found["weights"] = compared(self.source, self.folder, taken, everything=everything)
        failed = {check: said for check, said in found.items() if said.startswith("fail")}
        if failed:
            check, said = next(iter(failed.items()))
            lost = any(not kind["kept"] for stack in self.probe["stacks"] for kind in stack["kinds"])
            other = "--layers auto, which keeps a layer of each kind" if lost else "--keep, --layers"
            raise Refused(f"the small model is not faithful: {check}: {said.removeprefix('fail: ')}",
                          f"Keep other layers ({other}); --no-verify writes it all the same.")  # fmt: skip
        return found
