"""Build models of a config in the wanted sizes for an estimate, with a batch of tokens."""

from __future__ import annotations

import inspect
from typing import Any

from distdbg.errors import Refused
from distdbg.shrink.checkpoint.config_leaves import Config, changed
from distdbg.shrink.estimate.estimating import EstimateRequest, Made
from distdbg.shrink.probe.building import brief, open_builder
from distdbg.shrink.probe.controls import StackGroup, find_groups
from distdbg.shrink.probe.edits import edits_for, followers, lists_a_layer
from distdbg.shrink.probe.task import quiet
from distdbg.shrink.verify.modalities import modalities


class ConfigModel:
    """The model of the config.json in `folder`. Raises what opening it raises."""

    def __init__(self, folder: str, trust: bool) -> None:
        quiet()
        self._builder = open_builder(folder, trust)
        self.positions = _positions(self._builder.config(self._builder.full))
        self._group: StackGroup | None = None

    @property
    def layers(self) -> int | None:
        """The number of layers of the largest stack that a field of the config resizes."""
        if self._group is None:
            groups, _ = find_groups(self._builder)
            self._group = max(groups, key=lambda group: group.layers, default=None)
        return self._group.layers if self._group else None

    def make(self, wanted: EstimateRequest) -> Made | str:
        """The model and its loss, or why it cannot have so many layers."""
        values = self._builder.full if wanted.layers is None else self._with_layers(wanted.layers)
        if isinstance(values, str):
            return values
        try:
            model = self._model(values, wanted.dtype).train()
        except ImportError:
            raise  # a package that is missing, which whoever asked says
        except Exception as error:
            raise Refused(f"the model cannot be built without bytes: {brief(error)}", _OWN) from None
        batch = _batch(model, wanted.batch, wanted.sequence)

        def loss() -> Any:
            try:
                return model(**batch).loss
            except Exception as error:
                raise Refused(f"{type(model).__name__} cannot compute a loss so: {brief(error)}", _OWN) from None

        return Made(model, loss, tuple(modalities(model)))

    def _with_layers(self, layers: int) -> Config | str:
        """The config with so many layers, the model's own from the first one, over again."""
        builder, own = self._builder, self.layers
        if self._group is None or own is None:
            return "nothing in the config decides how many layers the model has"
        keep = [at % own for at in range(layers)]
        edits = edits_for(builder, self._group, keep, lists_a_layer(builder, self._group), [])
        values = changed(builder.full, edits | followers(builder, self._group, edits))
        found = builder.anatomy(values)
        if isinstance(found, Exception) or found.lists.get(self._group.stacks[0]) != layers:
            return f"the model cannot be built with {layers} layers"
        return values

    def _model(self, values: Config, words: str) -> Any:
        """Made in this dtype: tensors without bytes cannot be turned into others in their place."""
        import torch

        builder, dtype = self._builder, torch.bfloat16 if words == "bf16" else torch.float32
        config = builder.config(values)
        if hasattr(builder.model_class, "from_config"):
            return builder.model_class.from_config(config, trust_remote_code=builder.trust, torch_dtype=dtype)
        return builder.model_class._from_config(config, torch_dtype=dtype)


def _batch(model: Any, size: int, length: int) -> dict[str, Any]:
    """Token ids that are their own labels; where a sequence has one label, its class."""
    import torch

    takes = inspect.signature(model.forward).parameters
    if not {"input_ids", "labels"} <= set(takes):
        raise Refused(f"{type(model).__name__} is not trained on tokens with labels", _OWN)
    longest = _positions(model.config)
    if longest is not None and length > longest:
        raise Refused(f"the model knows {longest} positions, and {length} are asked for", "Lower --seq.")
    ids = torch.zeros(size, length, dtype=torch.long)
    labels = ids[:, 0] if "SequenceClassification" in type(model).__name__ else ids
    more = {"use_cache": False} if "use_cache" in takes else {}
    return {"input_ids": ids, "labels": labels.clone(), **more}


def _positions(config: Any) -> int | None:
    """How many the model knows, of a model of several parts its text; None where nothing says."""
    longest = getattr(config.get_text_config(), "max_position_embeddings", None)
    return longest if isinstance(longest, int) and longest > 0 else None


_OWN = "Write a function that makes it with its loss, and name that: train.py:make."
