"""Write a tokenizer's files for the tokens that stay."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from distdbg.shrink.checkpoint.config_leaves import changed
from distdbg.shrink.vocabulary.selecting import pair
from distdbg.shrink.vocabulary.token_ids import renumbered
from distdbg.shrink.vocabulary.tokenizer_files import (
    BY_ID,
    SETTINGS,
    TOKENIZER,
    WITH_IDS,
    TokenizerFiles,
    is_other_form,
    json_of,
)


def rewritten(tokenizer: TokenizerFiles, kept: Sequence[int], rows: int) -> dict[str, str | None]:
    """Name -> content; None for a file that is left out. `kept`: the old id of each new one. `rows`: how many there
    were."""
    new = {old: at for at, old in enumerate(kept)}
    files: dict[str, str | None] = {name: None for name in tokenizer.files if is_other_form(name)}
    rules = _rules(tokenizer, new)
    files[TOKENIZER] = _json(rules)
    for name in WITH_IDS:
        if name in tokenizer.files:
            config = json_of(tokenizer.files, name)
            files[name] = _json(changed(config, renumbered(config, rows, new)))
    settings = json_of(tokenizer.files, SETTINGS)
    if added := settings.get("added_tokens_decoder"):
        settings["added_tokens_decoder"] = {str(new[int(i)]): token for i, token in added.items() if int(i) in new}
    if settings:
        files[SETTINGS] = _json(settings)
    return files | {name: text for name, text in _other_files(rules).items() if name in tokenizer.files}


def _rules(tokenizer: TokenizerFiles, new: Mapping[int, int]) -> dict[str, Any]:
    """tokenizer.json."""
    rules = copy.deepcopy(tokenizer.rules)
    model = rules["model"]
    rules["added_tokens"] = [{**one, "id": new[one["id"]]} for one in rules.get("added_tokens", ()) if one["id"] in new]
    if isinstance(model["vocab"], list):
        if type(model.get("unk_id")) is int:
            model["unk_id"] = new[model["unk_id"]]
        model["vocab"] = [piece for at, piece in enumerate(model["vocab"]) if at in new]
    else:
        model["vocab"] = {token: new[i] for token, i in model["vocab"].items() if i in new}
    if "merges" in model:
        model["merges"] = _merges(model)
    ids = {one["content"]: one["id"] for one in rules["added_tokens"]}
    if not isinstance(model["vocab"], list):
        ids = {**model["vocab"], **ids}
    if isinstance(rules.get("padding"), dict) and rules["padding"].get("pad_token") in ids:
        rules["padding"]["pad_id"] = ids[rules["padding"]["pad_token"]]
    _post_processor(rules.get("post_processor"), new)
    return rules


def _merges(model: Mapping[str, Any]) -> list[Any]:
    prefix = model.get("continuing_subword_prefix") or ""
    vocabulary = model["vocab"]
    left = []
    for merge in model["merges"]:
        first, second = pair(merge)
        if first in vocabulary and second in vocabulary and first + second.removeprefix(prefix) in vocabulary:
            left.append(merge)
    return left


def _post_processor(value: Any, new: Mapping[int, int]) -> None:
    """What is set around a text: its tokens have a role, so they stayed."""
    if not isinstance(value, dict):
        return
    for inner in value.get("processors", ()):
        _post_processor(inner, new)
    for key in ("sep", "cls"):  # [token, id]
        if key in value:
            value[key][1] = new[value[key][1]]
    special = value.get("special_tokens")
    if isinstance(special, dict):
        for one in special.values():
            one["ids"] = [new[i] for i in one["ids"]]


def _other_files(rules: Mapping[str, Any]) -> dict[str, str]:
    """The forms in which tokenizers without a tokenizer.json are stored."""
    model = rules["model"]
    vocabulary = model["vocab"] if isinstance(model["vocab"], dict) else {}
    added = {one["content"]: one["id"] for one in rules["added_tokens"]}
    merges = [" ".join(pair(merge)) for merge in model.get("merges", ())]
    said = {
        "vocab.json": _json(vocabulary),
        "vocab.txt": _lines(sorted(vocabulary, key=lambda token: int(vocabulary[token]))),
        "merges.txt": _lines(["#version: 0.2", *merges]),
        "added_tokens.json": _json({token: i for token, i in added.items() if token not in vocabulary}),
    }
    return {name: said[name] for name in BY_ID}


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
