"""Say in three lines what the checks of a small model proved, and what they did not. Each check is in shrink.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distdbg.model import grouped

_PASS = "pass"
#: checks of a kept layer -> what it then has of the layer that it stands for
_OF_A_LAYER = {
    "kinds": "classes, shapes and attributes",
    "ops": "operators",
    "activation_bytes": "bytes kept for the backward pass",
    "gradients": "gradients",
    "gradients_image": "gradients with an image",
    "gradients_video": "gradients with a video",
    "gradients_audio": "gradients with a sound",
}
_OTHERS = "each_layer"
#: checks of what was written -> what is true of it then; "{}" is what the check says beside `pass`
_OF_THE_FILES = {
    "outputs": "its outputs are those of the full model whose other layers are identities{}",
    "runs": "forward and backward run with its own defaults{}",
    "generate": "generate runs with its own defaults{}",
    "stored_names": "each tensor is from the layer that it belongs to",
    "weights": "the bytes are the source's{}",
    "names_and_shapes": "transformers finds every tensor{}",
    "save_and_reload": "transformers saves it as it was, bit for bit",
    "tokenizer": "the tokenizer has the rows' ids{}",
    "processor": "transformers loads its processor{}",
    "smoke_test": "it runs{}",
}


def proved(verified: Mapping[str, str]) -> Iterator[str]:
    """`verified`: check -> what it says, none of them `fail`. Nothing where nothing was checked."""
    passed = {check: said.removeprefix(_PASS).lstrip("; ") for check, said in verified.items() if _passed(said)}
    same = [words for check, words in _OF_A_LAYER.items() if check in passed]
    if same:
        others = ""
        if besides := passed.get(_OTHERS):
            others = f"; every other layer of a kept kind does what a kept one does ({besides})"
        elif _OTHERS in passed:
            others = "; every other layer does what a kept one of its kind does"
        yield f"verified: each kept layer has the {_listed(same)} of the one that it stands for{others}"
    files = [words.format(_aside(passed[check])) for check, words in _OF_THE_FILES.items() if check in passed]
    if files:
        yield f"verified: {'; '.join(files)}"
    rest = grouped((_reason(verified[check]), check) for check in (check for check in verified if check not in passed))
    if rest:
        yield f"not verified: {'; '.join(f'{_listed(checks)} ({why})' for why, checks in rest.items())}"
    elif same:
        yield "not verified: nothing; every check that was made passed"
    elif verified:
        yield "not verified: the layers, and that the result loads: no model was built"


def _passed(said: str) -> bool:
    return said == _PASS or said.startswith(f"{_PASS};")


def _aside(said: str) -> str:
    return f" ({said})" if said else ""


def _reason(said: str) -> str:
    return said.removeprefix("not run, ").removeprefix("warning: ")


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
