"""Linting a file leaves nothing behind."""

import gc

from distdbg.lint.linting import lint_text
from distdbg.lint.rule import Context
from distdbg.lint.script.script import Script
from distdbg.lint.script.values import ValueFlow

_TRAINS = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Trainer:
    def __init__(self, net, loader, rank):
        self.model, self.loader, self.rank = DDP(net), loader, rank
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(self, batch):
        self.model(batch).mean().backward()
        self.optimizer.step()

    def run(self):
        for batch in self.loader:
            self.step(batch)
        torch.save(self.model.state_dict(), "last.pt")
"""


def test_all_of_a_script_goes_without_a_search_for_cycles():
    gc.collect()
    gc.disable()
    try:
        said = {f.id for f in lint_text("train.py", _TRAINS).findings}
        left = [type(one).__name__ for one in gc.get_objects() if isinstance(one, (Context, Script, ValueFlow))]
    finally:
        gc.enable()
    assert "missing-zero-grad" in said
    assert not left


def test_file_that_imports_accelerate_and_nothing_of_torch_is_linted() -> None:
    text = (
        "from accelerate import Accelerator\n\naccelerator = Accelerator()\n"
        "if accelerator.is_main_process:\n    accelerator.wait_for_everyone()\n"
    )
    findings = lint_text("save.py", text).findings
    assert [(f.id, f.evidence[0].line) for f in findings] == [("rank-conditional-collective", 5)]
