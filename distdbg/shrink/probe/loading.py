"""The task `load`: load torch and transformers before the first question needs them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def load(_task: dict[str, Any]) -> dict[str, Any]:
    import transformers

    _list_models_once()
    import transformers.modeling_utils
    import transformers.models.auto.modeling_auto

    return {"transformers": transformers.__version__}


def _list_models_once() -> None:
    """transformers reads the files of all its models to list what is in them, once for itself and again for
    `transformers.models`, which takes a tenth of the time that loading it takes: the second gets what the first found.
    """
    from transformers.utils import import_utils

    plain = getattr(import_utils, "create_import_structure_from_path", None)
    if plain is None or "transformers.models" in sys.modules:
        return

    def listed(path: str | Path) -> Any:
        return plain(Path(path).parent if Path(path).is_file() else path)

    import_utils.create_import_structure_from_path = listed
