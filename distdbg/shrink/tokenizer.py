"""Read a model's tokenizer, lay it out for the child process, and write it for the tokens that stay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distdbg.errors import EvidenceUnreadable
from distdbg.shrink.checkpoint.source import CheckpointSource
from distdbg.shrink.vocabulary.rewriting import rewritten
from distdbg.shrink.vocabulary.tokenizer_files import (
    TOKENIZER,
    TokenizerFiles,
    is_other_form,
    is_tokenizer_file,
    names_tokens,
    open_tokenizer,
)
from distdbg.whole_file import write_whole


def tokenizer_of(source: CheckpointSource) -> TokenizerFiles | None:
    """None where there is no tokenizer.json."""
    return open_tokenizer(_files(source)) if TOKENIZER in source.files() else None


def has_only_other_forms(source: CheckpointSource) -> bool:
    """Whether there is a tokenizer, but no tokenizer.json."""
    names = source.files()
    return TOKENIZER not in names and any(names_tokens(name) for name in names)


def lay_out_tokenizer(source: CheckpointSource, folder: Path) -> None:
    """What transformers needs to load a fast tokenizer, if there is one."""
    if TOKENIZER not in source.files():
        return
    for name, text in _files(source).items():
        if not is_other_form(name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder / name, text)


def write_tokenizer(source: CheckpointSource, folder: Path, probe: Mapping[str, Any]) -> list[str]:
    """Put the tokenizer of the tokens that stay in place of the source's. Gives warnings."""
    cut = next((one for one in probe["narrowed"] if one["axis"] == "vocab"), None)
    names = [name for name in source.files() if is_tokenizer_file(name)]
    if cut is None or not names:
        return []
    tokenizer = tokenizer_of(source)
    if tokenizer is None and not has_only_other_forms(source):
        return []
    if not cut["rows"] or tokenizer is None:
        why = f"its kind {tokenizer.kind!r} cannot be cut" if tokenizer else f"there is no {TOKENIZER}"
        return [f"the tokenizer is copied whole: {why}; its ids from {cut['to']} on have no row"]
    left_out = []
    for name, text in rewritten(tokenizer, cut["rows"], int(cut["from"])).items():
        if text is None:
            left_out.append(name)
            (folder / name).unlink()
        else:
            write_whole(folder / name, text, private=False)
    return [f"{', '.join(left_out)} left out: the small tokenizer is in {TOKENIZER} alone"] if left_out else []


def _files(source: CheckpointSource) -> dict[str, str]:
    files = {}
    for name in source.files():
        if is_other_form(name):
            files[name] = ""
        elif is_tokenizer_file(name):
            try:
                files[name] = (source.small(name) or b"").decode()
            except UnicodeDecodeError:
                raise EvidenceUnreadable(f"{name} beside the config is not UTF-8", "Fetch it again.") from None
    return files
