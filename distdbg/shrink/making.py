"""Run `shrink-model`: probe, slice, write, verify, record. Effects are at this edge."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distdbg.errors import EvidenceUnreadable, NothingToAnalyse, Refused
from distdbg.shrink.asking import ask
from distdbg.shrink.card import CARD, card
from distdbg.shrink.checking import verified
from distdbg.shrink.checkpoint.config_file import (
    CONFIG,
    code_and_config,
    read_config,
    refuse_absent_layers,
    refuse_untrusted,
)
from distdbg.shrink.checkpoint.config_leaves import edited, narrower
from distdbg.shrink.checkpoint.pickled import PICKLED_INDEX, pickled_files
from distdbg.shrink.checkpoint.places import places_of
from distdbg.shrink.checkpoint.quantized import FILES, following, renumbered_names
from distdbg.shrink.checkpoint.slicing import Piece, pieces
from distdbg.shrink.checkpoint.source import CheckpointSource, Folder
from distdbg.shrink.checkpoint.staging import refuse_a_full_disk, refuse_an_occupied, staged
from distdbg.shrink.checkpoint.tensors import Tensor, tensors_of
from distdbg.shrink.checkpoint.uniform import uniform_layout
from distdbg.shrink.checkpoint.weights_check import only_nan
from distdbg.shrink.checkpoint.writing import (
    RECORD,
    SILENT,
    ShrinkProgress,
    copy_others,
    others,
    output_files,
    record,
    write_files,
    write_public_json,
)
from distdbg.shrink.estimate.extrapolating import extrapolated
from distdbg.shrink.tokenizer import has_only_other_forms, lay_out_tokenizer, write_tokenizer
from distdbg.whole_file import write_whole

#: what is made anew
_MADE = (CONFIG, RECORD, CARD)


@dataclass(frozen=True)
class ShrinkRequest:
    """What is wanted. layers: a number, or None for one layer of each kind (see `choosing`). experts, vocab: numbers;
    width: a factor, with random weights; None for all there is. size: see `probe.sizing`. smoke: do a step with it."""

    layers: int | None = None
    keep: str = "kinds"
    stacks: Mapping[str, int] = field(default_factory=dict)
    random: bool = False
    dtype: str | None = None
    trust: bool = False
    verify: str = "default"
    experts: int | None = None
    vocab: int | None = None
    width: float | None = None
    size: str | None = None
    smoke: bool = False


def make(
    source: CheckpointSource, destination: Path, order: ShrinkRequest, progress: ShrinkProgress = SILENT
) -> dict[str, Any]:
    """Write the small model to `destination`; gives what `shrink.json` says."""
    refuse_an_occupied(destination)
    config = read_config(source)
    refuse_absent_layers(config, order.keep, order.layers)
    order = replace(order, random=order.random or order.width is not None)
    order, tensors, pickled = _weights(source, order)
    if isinstance(source, Folder):
        source.refuse_the_unreadable(others(source, _MADE))
    probe = _known(config, tensors, order)
    if probe is None:
        with progress.stage("looking for what counts the layers, and which of them are of a kind"):
            probe = probed(source, order, tensors or ())
    if any(one["random"] for one in probe["narrowed"]):  # a part of a row is no smaller model
        order, tensors, pickled = replace(order, random=True), None, []
        probe["modules"] = {}
    small_config = edited(narrower(config, probe), probe["edits"], probe)
    kept = {path: s["kept"] for s in probe["stacks"] for path in (s["path"], *s["also"])}
    taken: list[Piece] = []
    dropped: list[str] = []
    if tensors is not None:
        places = places_of({name: tensor.shape for name, tensor in tensors.items()}, probe, probe["modules"])
        taken, dropped = pieces(tensors.values(), lambda name: places.new[name], places.cuts)
        kept |= places.kept
    modules = frozenset(name.rpartition(".")[0] for name in tensors or ())
    small_config = following(small_config, kept, modules)
    files = output_files(taken) if taken else []
    total = sum(f.size for f in files)
    refuse_a_full_disk(destination, total)
    plan = hashlib.sha256(repr((small_config, taken, order)).encode()).hexdigest()
    with staged(destination, plan) as folder:
        _other_files(source, folder, probe, kept, modules)
        write_public_json(folder / CONFIG, small_config)
        if order.random:
            with progress.stage("making random weights"):
                ask("random", folder=str(folder), to=str(destination), trust=order.trust, dtype=order.dtype, seed=0)
        elif not pickled:
            write_files(source, files, folder, progress.counter(total))
        if pickled:
            with progress.stage("reading the weights"):
                probe["pickled"] = _pickled(source, folder, destination, probe, trust=order.trust)
        made = record(probe, taken, dropped, folder, read=source.bytes_read, random=order.random)
        if not order.random and only_nan(folder):
            made["warnings"].append("every weight that was looked at is NaN; they are copied as they are")
        if order.verify != "none":
            with progress.stage("comparing every kept layer with the one it represents"):
                made["verified"] = verified(
                    source, folder, probe, taken,
                    trust=order.trust, everything=order.verify == "full", smoke=order.smoke,
                )  # fmt: skip
        _write_about(source, folder, made)
    return made


def _write_about(source: CheckpointSource, folder: Path, made: Mapping[str, Any]) -> None:
    there = (source.small(CARD) or b"").decode(errors="replace")
    write_whole(folder / CARD, card(made, _name_of(source), there), private=False)
    write_public_json(folder / RECORD, made)


def _name_of(source: CheckpointSource) -> str:
    """A folder or a URL by its last part: the way to it is nobody else's business."""
    if isinstance(source, Folder) and source.where.startswith(str(source.path)):
        return source.path.resolve().name
    return source.where.partition("?")[0].rstrip("/").rpartition("/")[2] if "://" in source.where else source.where


def _weights(
    source: CheckpointSource, order: ShrinkRequest
) -> tuple[ShrinkRequest, dict[str, Tensor] | None, list[str]]:
    """The request, tensors in safetensors files, and files of pickled ones. Raises NothingToAnalyse where there are
    none, and none were asked for."""
    tensors = None if order.random else tensors_of(source)
    pickled = [] if order.random or tensors is not None else pickled_files(source.files(), source.small(PICKLED_INDEX))
    if order.size is not None and tensors is None and not pickled:
        order = replace(order, random=True)
    if tensors is None and not order.random and not pickled:
        raise NothingToAnalyse(
            f"{source.where} has a config but no weights (safetensors or .bin)",
            "Use --random for a model with random weights.",
        )
    return order, tensors, pickled


def _known(
    config: Mapping[str, Any], tensors: Mapping[str, Tensor] | None, order: ShrinkRequest
) -> dict[str, Any] | None:
    """The layout of a well-known model whose small copy is not verified: then nothing needs torch. Else None."""
    narrower = (order.experts, order.vocab, order.width) != (None, None, None)
    if tensors is None or order.verify != "none" or order.stacks or order.size or narrower:
        return None
    return uniform_layout(config, tensors, order.layers, order.keep)


def _other_files(
    source: CheckpointSource, folder: Path, probe: Mapping[str, Any], kept: Mapping[str, Sequence[int]],
    modules: Collection[str]
) -> None:  # fmt: skip
    """Copy what is beside the weights, and make it fit."""
    copy_others(source, folder, _MADE)
    probe["warnings"].extend(write_tokenizer(source, folder, probe))
    for path in (folder / name for name in FILES if (folder / name).is_file()):
        try:
            said = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            raise EvidenceUnreadable(f"{path.name} beside the config is not JSON", "Fetch it again.") from None
        write_public_json(path, renumbered_names(said, kept, modules))


def _pickled(
    source: CheckpointSource, folder: Path, destination: Path, probe: Mapping[str, Any], *, trust: bool
) -> dict[str, Any]:
    if not isinstance(source, Folder):
        raise Refused(
            f"{source.where} has only .bin weights, of which parts cannot be fetched",
            "Download it and name its folder.",
        )
    with tempfile.TemporaryDirectory(prefix="distdbg-shrink-") as config:
        code_and_config(source, Path(config), trust=trust)
        files = pickled_files(source.files(), source.small(PICKLED_INDEX))
        source.refuse_the_unreadable(files)
        found: dict[str, Any] = ask(
            "pickled", source=str(source.path), files=files, folder=str(folder), to=str(destination),
            probe=dict(probe), config=config, trust=trust,
        )  # fmt: skip
    return found


def full_costs(small: Path, made: Mapping[str, Any], tokens: int, trust: bool) -> dict[str, float]:
    """Parameters, forward FLOPs and activation bytes of the full model, from the small one's layers.

    Raises Refused where a kind of layers has none in the small model, or its forward cannot be run.
    """
    try:
        costs = ask("costs", small=str(small), stacks=made["stacks"], trust=trust, tokens=tokens)
        return {cost: extrapolated(total, layers, made["stacks"]) for cost, (total, layers) in costs.items()}
    except LookupError as error:
        raise Refused(
            f"the full model's costs do not follow from these layers: {error}", "Use --layers auto."
        ) from None


def probed(source: CheckpointSource, order: ShrinkRequest, stored: Iterable[str] = ()) -> dict[str, Any]:
    """What the child process found out; it gets the config, the names of the tensors, and the model's own code where
    that may run."""
    refuse_untrusted(source, trust=order.trust)
    with tempfile.TemporaryDirectory(prefix="distdbg-shrink-") as folder:
        code_and_config(source, Path(folder), trust=order.trust)
        if order.vocab is not None or order.size is not None:
            lay_out_tokenizer(source, Path(folder))
        found: dict[str, Any] = ask(
            "probe",
            folder=folder,
            trust=order.trust,
            layers=order.layers,
            keep=order.keep,
            stacks=dict(order.stacks),
            narrow={"experts": order.experts, "vocab": order.vocab, "width": order.width},
            size=order.size,
            uncut=has_only_other_forms(source),
            stored=list(stored),
        )
    return found
