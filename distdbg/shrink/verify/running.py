"""Whether a config's model runs at all, on the meta device, with a text and with what else it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distdbg.shrink.checkpoint.config_leaves import Config
from distdbg.shrink.probe.building import Builder, brief
from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.measuring import dry
from distdbg.shrink.verify.modalities import inputs_of, modalities
from distdbg.shrink.verify.values import built


def problems(builder: Builder, values: Config) -> dict[str, str]:
    """The error of one pass of each kind of input (`text`, `image`, `audio`), empty where there is none. Experts are
    computed without asking the router."""
    try:
        model = built(lambda: prepared(builder.model(values)))
        found = {"text": _raised(model, lambda: inputs_for(model))}
        kinds = list(modalities(model))
    except Exception as error:
        return {"text": brief(error)}
    return found | {kind: _raised(model, lambda kind=kind: inputs_of(model, kind)) for kind in kinds}  # type: ignore[misc]


def _raised(model: Any, inputs: Callable[[], dict[str, Any]]) -> str:
    try:
        dry(model, inputs())
    except Exception as error:
        return brief(error)
    return ""


def prepared(model: object) -> object:
    """In single precision, with the experts in a form that does not depend on what the router says."""
    for form in ("batched_mm", "grouped_mm"):
        try:
            model.set_experts_implementation(form)  # type: ignore[attr-defined]
            break
        except Exception:
            continue
    return model.float()  # type: ignore[attr-defined]
