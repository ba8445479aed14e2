"""Detect a checkpoint whose names all begin with the prefix of a wrapper."""

from __future__ import annotations

import re
import sys
from typing import Any

from distdbg.worker.guards.shared.base import Guard
from distdbg.worker.models import is_replicated
from distdbg.worker.user_code import frames_above, mentioned, users_line

#: function that writes -> its argument with the state
_GIVEN = {("torch.serialization", "save"): "obj", ("safetensors.torch", "save_file"): "tensors"}
_PREFIXES = ("module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.")
#: What takes the prefix away where the file is read.
_STRIPS = re.compile(r"[\"']module\.|_orig_mod\.|consume_prefix")


class CheckpointModulePrefix(Guard):
    id = "checkpoint-module-prefix"
    modes = ("off", "warn", "error")
    costs = "about 10 us for each torch.save and save_file"
    blind = (
        "what neither torch.save nor safetensors write; models with a part called `module` that is no wrapper's; "
        "scripts that name the prefix, as scripts that remove it do"
    )

    def begin(self) -> None:
        self.listen("save", self._save)
        self.listen("write", self._save)

    def _save(self, _path: object) -> None:
        for state in _states(_saved_object()):
            names = list(state)
            prefix = next((p for p in reversed(_PREFIXES) if all(name.startswith(p) for name in names)), None)
            if prefix is None:
                continue
            model = self.context.model()
            own = getattr(model, "module", None) if prefix.startswith("module.") else model
            if prefix.startswith("module.") and (own is None or not is_replicated(model)):
                continue  # the model itself has a part of that name
            if mentioned(_STRIPS):
                return
            where = users_line()
            self.report(where, f"all names of the checkpoint begin with {prefix}", prefix=prefix, names=names[:3],
                     count=len(names))  # fmt: skip
            return


def _saved_object() -> Any:
    """The argument of torch.save or of safetensors' save_file, from a frame of the stack."""
    for frame in frames_above(12):
        given = _GIVEN.get((frame.f_globals.get("__name__", ""), frame.f_code.co_name))
        if given is not None:
            return frame.f_locals.get(given)
    return None


def _states(saved: Any) -> list[Any]:
    """The dicts of tensors in the saved object: itself, or one of its values."""
    if not isinstance(saved, dict):
        return []
    return [one for one in (saved, *list(saved.values())[:20]) if isinstance(one, dict) and _is_state(one)]


def _is_state(one: dict[Any, Any]) -> bool:
    tensor = sys.modules["torch"].Tensor
    return bool(one) and all(isinstance(k, str) for k in one) and isinstance(next(iter(one.values())), tensor)
