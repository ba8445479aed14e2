"""Weight decay on norms and biases: over all parameters at once, or past a list of names that matches none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from distdbg.lint.rule import Context, Hit
from distdbg.lint.script.script import argument

_DECOUPLED = {"AdamW", "Lion", "LAMB", "FusedLAMB", "AdamW8bit", "NAdamW"}
_NORM = re.compile(r"^(?:Layer|RMS|Group|Batch|SyncBatch|Instance)Norm(?:\dd)?$")
_LIST = re.compile(r"no_?(?:weight_?)?decay|without_decay|skip_decay", re.IGNORECASE)
_MEANS_NORMS = re.compile(r"norm|\bln|_ln|ln_", re.IGNORECASE)

REAL_MISTAKES = 1
#: without these words there is nothing to check
NEEDS = (re.compile(r"Norm"), re.compile(r"decay"))
#: models whose norms are called otherwise: `ln_1`, `layer_norm`, `input_layernorm`
_OTHERS = re.compile(
    r"gpt|(?<![a-z])t5(?![a-z])|llama|mistral|qwen|bloom|falcon|CausalLM|whisper|wav2vec", re.IGNORECASE
)


def check(context: Context) -> Iterator[Hit]:
    script = context.script
    norms = [c for c, last in script.last_names.items() if _NORM.match(last) and script.class_of(c) is not None]
    if not norms:
        yield from _list_of_one_family(context)
        return
    for optimizer in context.values.of_kind("optimizer"):
        decay = argument(optimizer, -1, "weight_decay")
        if (
            script.last_names[optimizer] in _DECOUPLED
            and decay is not None
            and _is_positive(context, decay)
            and _whole(context, optimizer)
        ):
            yield Hit(
                optimizer,
                "weight decay for all parameters at once: norms and biases are decayed, too",
                related=((norms[0], "a norm of the model"),),
            )


def _is_positive(context: Context, decay: ast.expr) -> bool:
    return any(isinstance(value, ast.Constant) and value.value for value in (decay, *context.values.bound(decay)))


def _whole(context: Context, optimizer: ast.Call) -> bool:
    """`model.parameters()` of a model whose class is in this file."""
    match argument(optimizer, 0, "params"):
        case ast.Call(func=ast.Attribute(value=model, attr="parameters"), args=[], keywords=[]):
            return any(context.values.kind(s) == "instance" for s in context.values.sites(model))
    return False


def _list_of_one_family(context: Context) -> Iterator[Hit]:
    """`["bias", "LayerNorm.weight"]`, the names of BERT, for a model of another file."""
    for assigned in context.script.all(ast.Assign):
        match assigned:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=elements)) if _LIST.search(name):
                words = [e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            case _:
                continue
        norms = [w for w in words if _MEANS_NORMS.search(w) and w != "bias"]
        if not norms or not all(w in ("LayerNorm.weight", "LayerNorm.bias") for w in norms):
            continue
        text = context.script.file_of(assigned).text
        if re.search("bert|electra|longformer|layoutlm", text, re.IGNORECASE) or not _OTHERS.search(text):
            continue
        said = "norms that are not called LayerNorm (as BERT's are; GPT-2, T5 and Llama have other names) are decayed"
        yield Hit(assigned, said, "possible", severity="info")
