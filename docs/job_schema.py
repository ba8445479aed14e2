"""Make the JSON schema of a job file, for editors; its output is configs/job.schema.json.

python docs/job_schema.py > configs/job.schema.json
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from distdbg.launch.plan.environment import load_preset, preset_names
from distdbg.launch.plan.torchrun_flags import FLAGS, OWN_KEYS
from distdbg.settings import JobSettings, SlurmSettings

#: Numbers and switches may be written as such; distdbg takes them as text.
_WORD: dict[str, Any] = {"type": ["string", "number", "boolean"]}


def job_schema() -> dict[str, Any]:
    """JSON schema 2020-12. Flags of a torch that is newer than our table are not refused."""
    schema = JobSettings.model_json_schema()
    of = schema["properties"]
    for name, description in _descriptions(JobSettings):
        of[name].pop("title", None)
        of[name]["description"] = " ".join(description.split())
    for name, description in _descriptions(SlurmSettings):
        schema["$defs"]["SlurmSettings"]["properties"][name]["description"] = description
    of["args"]["items"] = _WORD
    of["env"]["additionalProperties"] = _WORD
    of["show_ranks"] |= {"type": ["string", "integer"]}
    of["presets"]["items"] = {
        "oneOf": [{"const": name, "description": load_preset(name).summary} for name in preset_names()]
    }
    of["torchrun"]["additionalProperties"] = _WORD
    of["torchrun"]["properties"] = {
        flag.name: {"description": flag.help, **(_WORD if flag.takes_value else {"type": "boolean"})}
        for flag in FLAGS
        if flag.name not in OWN_KEYS
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _descriptions(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """(field, what stands below it). Pydantic can read them, too (use_attribute_docstrings): at each start of a launch,
    for a tenth of its time."""
    module = ast.parse(Path(inspect.getfile(model)).read_text(encoding="utf-8"))
    (body,) = (node.body for node in module.body if isinstance(node, ast.ClassDef) and node.name == model.__name__)
    for field, text in pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                yield name, inspect.cleandoc(words)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(job_schema(), indent=1, ensure_ascii=False) + "\n")
