"""The JSON schema of a job file, from which editors complete: configs/job.schema.json is what this gives.

python -m distdbg.launch.job_schema > configs/job.schema.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

from distdbg.launch.environment import load_preset, preset_names
from distdbg.launch.torchrun_flags import FLAGS, OWN_KEYS
from distdbg.settings import JobSettings

#: Numbers and switches may be written as such; distdbg takes them as text.
_WORD: dict[str, Any] = {"type": ["string", "number", "boolean"]}


def job_schema() -> dict[str, Any]:
    """JSON schema 2020-12. Flags of a torch that is newer than our table are not refused."""
    schema = JobSettings.model_json_schema()
    for entry in schema["properties"].values():
        entry.pop("title", None)
        entry["description"] = " ".join(entry["description"].split())
    of = schema["properties"]
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


if __name__ == "__main__":
    sys.stdout.write(json.dumps(job_schema(), indent=1, ensure_ascii=False) + "\n")
