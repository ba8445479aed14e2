"""Facts of guards whose fields are of other types, as another program may have written them: no rule fails."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from distdbg.diagnosis import guards
from distdbg.findings import catalogue
from distdbg.protocol.message import Fact
from distdbg.report.json_form import JsonRenderer
from distdbg.report.page.renderer import PageRenderer
from distdbg.report.run_document import run_document
from distdbg.report.text.renderer import TextRenderer
from tests.made_run import MadeRun

SOURCES = [path.read_text(encoding="utf-8") for path in Path(guards.__file__).parent.rglob("*.py")]
#: What rules read of a guard's fact: by name, or in a template.
NAMES = sorted({name for text in SOURCES for name in re.findall(r'(?:get\(|, |\[)"([a-z_]+)"|\{([a-z_]+)[:}]', text)})
VALUES = [math.inf, 10**400, "\ud800", [None], [["a", [1, "b"]]], {"": None}]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:20])
def test_no_rule_fails(tmp_path, value):
    run = MadeRun(tmp_path, ranks=2, nodes=1)
    fields = {name: value for pair in NAMES for name in pair if name not in ("", "rank", "self")}
    plausible = {"among": [0, 1], "step": 3, "at": 3, "ended": 2.0, "start": [1]}
    for rank in (0, 1):
        for guard in catalogue():
            for given in (fields, fields | plausible | {"sums": [["a", str(rank)]]}):
                run.fact(rank, **{**given, "kind": "guard", "guard": guard, "t": rank})
        for kind, message in Fact.kinds.items():
            run.fact(rank, **{**dict.fromkeys(message.types.keys() - {"rank", "self"}, value), "kind": kind, "t": 0})
    with run.files(0).folder.joinpath("gradients.jsonl").open("w") as file:
        file.write(json.dumps({"layers": ["a"], "kind": "gradient-names", "op": "fact"}) + "\n")
        file.write(json.dumps({"step": 1, "gradient": [value], "weight": [value], "dead": value}) + "\n")
    run.dir.job.write_text(json.dumps({**run.job(), "program": value, "topology": value}))
    report, evidence = run.report(), run.evidence()
    assert not [unknown.because for unknown in report.unknown if unknown.because.startswith("rule ")]
    document = run_document(report, evidence)
    for renderer in (JsonRenderer(), TextRenderer(), PageRenderer()):
        assert renderer.render(document)
