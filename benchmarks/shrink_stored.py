"""One type of `shrink_sweep.py`: a narrow model with random weights, from save_pretrained to a training step.

The default config is made narrow by its names of sizes (a benchmark may guess; the tool itself does not). It is built,
saved by transformers, made small by `shrink-model` with default options, and loaded again. Then: each tensor of the
loaded small model against that of the loaded full one; the outputs of both, where the full one's other layers are
identities (shrink_outputs.py); forward, backward and `generate` of both. `wrong`: a tensor that is another layer's,
other outputs, or a small model that raises where the full one runs. `warned`: other outputs, and the command warns.
"""

from __future__ import annotations

import copy
import importlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from shrink_outputs import compare_outputs

from distdbg.errors import DistdbgError, Refused
from distdbg.shrink import checking, making
from distdbg.shrink.checkpoint.layer_names import all_renumbered
from distdbg.shrink.checkpoint.opening import open_source
from distdbg.shrink.checkpoint.places import places_of
from distdbg.shrink.child import TASKS
from distdbg.shrink.making import ShrinkRequest, make
from distdbg.shrink.probe.building import Builder, brief, json_values, model_class, open_builder
from distdbg.shrink.verify.inputs import inputs_for, runs
from distdbg.shrink.verify.kept import kept_of

MOST_ELEMENTS = 130_000_000
_SIZES = ("hidden", "intermediate", "dim", "d_model", "ffn", "width", "embd", "embed", "inner", "proj", "channels",
          "rank", "d_ff", "d_kv", "mrope_section", "sizes", "d_state", "query_pre_attn")  # fmt: skip
_NOT_SIZES = ("num_", "n_layers", "kernel", "stride", "image_size", "patch", "layers", "position", "max_", "depths",
              "n_heads", "num_channels", "in_channels", "chunk", "window", "spatial", "group")  # fmt: skip
ROWS = 1000
FRAMES = 8
#: a state space pads each sequence to a whole chunk; without its kernels torch takes the square of it, for each head
TOKENS_A_CHUNK = 16


def narrow(config: Any, factor: int) -> dict[str, Any]:
    values = json_values(config)
    _narrow(values, factor)
    return values


def _narrow(values: dict[str, Any], factor: int) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            _narrow(value, factor)
        elif type(value) is int and "vocab" in key and value > ROWS:
            values[key] = ROWS
        elif type(value) is int and ("token" in key or key.endswith("_id") or key.endswith("_index")) and value >= ROWS:
            values[key] = value % (ROWS // 2) + 3
        elif type(value) is int and "expert" in key and value >= 64 and "size" not in key and "dim" not in key:
            values[key] = 16
        elif key == "frames_per_clip" and value > FRAMES:
            values[key] = FRAMES
        elif key in ("chunk_size", "mamba_chunk_size") and type(value) is int and value > TOKENS_A_CHUNK:
            values[key] = TOKENS_A_CHUNK
        elif any(word in key for word in _SIZES) and not any(word in key for word in _NOT_SIZES):
            if type(value) is int and value >= 16 * factor // 4 and value % factor == 0:
                values[key] = value // factor
            elif isinstance(value, list) and value and all(type(v) is int and v % factor == 0 for v in value):
                values[key] = [v // factor for v in value]


def tiny(model_type: str) -> tuple[Builder, int]:
    """(the builder of the narrowest config that runs and is small enough, its factor); if none runs, the narrowest that
    can be built"""
    import transformers

    config = transformers.CONFIG_MAPPING[model_type]()
    chosen = _own_class(config) if is_without_auto_class(config) else model_class(config, None, False)
    error: Exception = Refused("no narrower config can be built", "")
    built: tuple[Builder, int] | None = None
    large = False
    for factor in (16, 64, 32, 8, 4, 2, 1):
        if factor in (64, 32) and not large:
            continue
        try:
            small = type(config).from_dict(copy.deepcopy(narrow(config, factor)))
            builder = Builder(small, chosen)
            model = builder.model(builder.full)
        except Exception as why:
            error = why
            continue
        large = sum(p.numel() for p in model.parameters()) > MOST_ELEMENTS
        if not large:
            if _runs(builder.with_constant_weights(builder.full)):
                return builder, factor
            built = built or (builder, factor)
        error = Refused("its narrowest config that can be built is too large", "")
    if built:
        return built
    raise error


def _runs(model: Any) -> bool:
    try:
        return runs(model, inputs_for(model))
    except Exception:
        return False


def is_without_auto_class(config: Any) -> bool:
    try:
        return bool(model_class(config, None, False) is None)
    except Refused:
        return True


def _own_class(config: Any) -> Any:
    """A class of the config's module that no auto class knows: the last one that transformers exports."""
    import transformers

    package = importlib.import_module(type(config).__module__.rpartition(".")[0])
    files = [path for folder in package.__path__ for path in sorted(Path(folder).glob("modeling_*.py"))]
    modules = [importlib.import_module(f"{package.__name__}.{path.stem}") for path in files]
    found = []
    for name, one in ((name, one) for module in modules for name, one in vars(module).items()):
        if not isinstance(one, type) or not issubclass(one, transformers.PreTrainedModel):
            continue
        is_whole = "PreTrained" not in name and (name.endswith(("Model", "Generation", "LM")) or "For" in name)
        if is_whole and hasattr(transformers, name) and getattr(one, "config_class", None) is type(config):
            found.append(one)
    if not found:
        raise Refused(f"transformers has no model class for the type {config.model_type!r}", "")
    return sorted(found, key=lambda one: ("For" in one.__name__, one.__name__))[-1]


def look(model_type: str) -> dict[str, Any]:
    """The outcome, why, and `forward` (with backward) and `generate`: pass, fail, or why they were not run."""
    import torch
    import transformers

    layouts: list[dict[str, Any]] = []

    def ask(task: str, **arguments: Any) -> Any:
        return json.loads(json.dumps(resolve_name(TASKS[task])(arguments)))

    def places(shapes: Any, layout: Any, modules: Any) -> Any:
        layouts.append(layout)
        return places_of(shapes, layout, modules)

    making.ask = checking.ask = ask
    making.places_of = places
    row: dict[str, Any] = {"type": model_type, "outcome": "not built", "why": ""}
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="distdbg-sweep-") as folder:
        large, small = Path(folder, "large"), Path(folder, "small")
        try:
            row["own_class"] = is_without_auto_class(transformers.CONFIG_MAPPING[model_type]())
            builder, row["factor"] = tiny(model_type)
            maker = getattr(builder.model_class, "from_config", None) or builder.model_class._from_config
            maker(builder.config(builder.full)).save_pretrained(large)
        except Exception as error:
            return row | {"why": brief(error)[:200]}
        row["outcome"] = "wrong"
        try:
            source = open_source(str(large))
            made = make(source, small, ShrinkRequest())
        except Refused as error:
            return row | {"outcome": "refused", "why": error.message, "remedy": error.remedy}
        except DistdbgError as error:
            return row | {"why": error.message}
        row |= {check: made["verified"].get(check, "not run") for check in ("runs", "outputs", "generate")}
        row["stacks"] = {s["path"]: [s["layers"], s["kept"]] for s in made["stacks"]}
        problems = list(_problems(large, small, layouts[-1], row))
        is_told = row["outputs"].startswith("warning") and all(words.startswith("wrong") for words in problems)
        outcome = ("warned" if is_told else "wrong") if problems else "right"
        return row | {"outcome": outcome, "why": "; ".join(problems)}


def _problems(large: Path, small: Path, probe: dict[str, Any], row: dict[str, Any]) -> Iterator[str]:
    full, little = open_builder(str(large), False), open_builder(str(small), False)
    stacks = kept_of(probe["stacks"], probe["entries"])
    kept = {s.path: s.kept for s in stacks} | probe["entries"]
    a, b = full.whole, little.whole
    moved = [p for p, n in a.lists.items() if b.lists.get(p, n) != n and p not in kept]
    if moved:
        yield f"{moved[0]} became shorter and is not renumbered"
    try:
        one, _ = full.model_class.from_pretrained(large, output_loading_info=True)
        two, info = little.model_class.from_pretrained(small, output_loading_info=True)
    except Exception as error:
        yield f"does not load: {brief(error)}"
        return
    wrong = _other_weights(one, two, kept, probe["cuts"])
    if wrong:
        yield wrong
    if info["missing_keys"]:
        row["missing"] = sorted(info["missing_keys"])[:3]
    try:
        inputs = _inputs(one)
    except Exception as error:
        row["forward"] = f"not run: {brief(error)[:80]}"
        return
    try:
        row["same outputs"] = compare_outputs(one, two, {s.path: (s.layers, s.kept) for s in stacks}, inputs)
    except Exception as error:
        row["same outputs"] = f"not run: {brief(error)[:80]}"
    if row["same outputs"].startswith("wrong"):
        yield row["same outputs"]
    for what, call in (("step", _step), ("four tokens", _generate)):
        try:
            call(one, inputs)
        except Exception as error:
            row[what] = f"not run: {brief(error)[:80]}"
            continue
        try:
            call(two, inputs)
            row[what] = "pass"
        except Exception as error:
            row[what] = "fail"
            yield f"{what} of the small model raises {brief(error)[:200]}"


def _other_weights(one: Any, two: Any, kept: dict[str, Any], cuts: dict[str, Any]) -> str:
    import torch

    here, there = two.state_dict(), one.state_dict()
    given = set()
    for name, value in there.items():
        for new in all_renumbered(name, kept):
            if new not in here:
                continue
            part = value
            for dim, rows, _ in cuts.get(name, ()):
                part = part.index_select(dim, torch.tensor(rows))
            given.add(new)
            if here[new].shape != part.shape or not torch.equal(here[new].nan_to_num(), part.nan_to_num()):
                return f"{new} is not {name} of the full model"
    left = sorted(here.keys() - given)
    return f"{left[0]} stands for nothing in the full model" if left else ""


def _inputs(model: Any) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    return {
        name: value * (0.5 + torch.rand(value.shape)) if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value for name, value in inputs_for(model).items() if name != "use_cache"
    }  # fmt: skip


def _step(model: Any, inputs: dict[str, Any]) -> None:
    from distdbg.shrink.verify.measuring import tensors_in

    outputs = [t for t in tensors_in(model.train()(**inputs)) if t.requires_grad and t.is_floating_point()]
    sum(t.float().sum() for t in outputs).backward()


def _generate(model: Any, inputs: dict[str, Any]) -> None:
    import torch

    if not getattr(model, "can_generate", bool)():
        raise LookupError("it does not generate")
    given = {k: v for k, v in inputs.items() if k not in ("use_cache", "decoder_input_ids")}
    with torch.no_grad():
        model.eval().generate(**given, max_new_tokens=3, do_sample=False)
