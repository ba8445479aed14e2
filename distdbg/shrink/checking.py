"""Check a small model: its layers, and its files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distdbg.errors import Refused
from distdbg.shrink.asking import ask
from distdbg.shrink.checkpoint.config_file import CONFIG, code_and_config, read_config
from distdbg.shrink.checkpoint.config_leaves import narrower
from distdbg.shrink.checkpoint.slicing import Piece
from distdbg.shrink.checkpoint.source import CheckpointSource
from distdbg.shrink.checkpoint.weights_check import compared
from distdbg.shrink.tokenizer import lay_out_tokenizer
from distdbg.whole_file import write_whole


def verified(
    source: CheckpointSource, folder: Path, probe: Mapping[str, Any], taken: Sequence[Piece], *,
    trust: bool, everything: bool, smoke: bool
) -> dict[str, str]:  # fmt: skip
    """Check -> what it says of the small model in `folder`. Raises Refused if one fails."""
    pickled = probe.get("pickled", {})
    vocabulary = [one for one in probe["narrowed"] if one["axis"] == "vocab" and one["rows"]]
    with tempfile.TemporaryDirectory(prefix="distdbg-shrink-") as full:
        code_and_config(source, Path(full), trust=trust)
        if vocabulary:
            lay_out_tokenizer(source, Path(full))
        write_whole(Path(full) / CONFIG, json.dumps(narrower(read_config(source), probe)))
        found: dict[str, str] = ask(
            "verify",
            full=full,
            small=str(folder),
            trust=trust,
            stacks=probe["stacks"],
            entries=probe["entries"],
            everything=everything,
            tied=probe["tied"],
            tokens=vocabulary[0]["rows"] if vocabulary else [],
            rows=int(vocabulary[0]["from"]) if vocabulary else 0,
            origins=pickled.get("origins") or {piece.name: piece.source.name for piece in taken},
            sources=sorted(probe["modules"]) or pickled.get("sources", []),
            cuts=probe["cuts"],
            smoke=smoke,
        )
    if taken:
        found["weights"] = compared(source, folder, taken, everything=everything)
    failed = {check: said for check, said in found.items() if said.startswith("fail")}
    if failed:
        check, said = next(iter(failed.items()))
        lost = any(not kind["kept"] for stack in probe["stacks"] for kind in stack["kinds"])
        other = "--layers auto, which keeps a layer of each kind" if lost else "--keep, --layers"
        raise Refused(f"the small model is not faithful: {check}: {said.removeprefix('fail: ')}",
                      f"Keep other layers ({other}); --no-verify writes it all the same.")  # fmt: skip
    return found
