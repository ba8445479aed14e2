"""A part of a package whose training script wraps the model in DDP."""

from pathlib import Path

import torch


class Expert(torch.nn.Module):
    def log_records(self, mode, records):
        with open(Path(self.folder) / f"{mode}.txt", "w") as file:  # expect: checkpoint-race
            file.writelines(records["lines"])
