"""Whether a config's model runs at all, on the meta device."""

from __future__ import annotations

from distdbg.shrink.config_leaves import Config
from distdbg.shrink.probe.building import Builder, brief
from distdbg.shrink.verify.inputs import inputs_for
from distdbg.shrink.verify.measuring import measure


def why_not(builder: Builder, values: Config) -> str:
    """The error of one forward pass, empty where there is none. Experts are computed without asking the router."""
    try:
        model = prepared(builder.model(values))
        measure(model, model, inputs_for(model), [])
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
