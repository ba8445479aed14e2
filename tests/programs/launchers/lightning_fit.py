"""Lightning's own launcher: the script is rank 0 itself, and starts the others; `STRATEGY` may be ddp_spawn, too."""

import os

import lightning
import torch
from steps import STEPS, read_shard


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        if index == 3 and self.global_rank == 1 and os.environ.get("FAULT") == "hang":
            read_shard()
        if index == 3 and self.global_rank == 1 and os.environ.get("FAULT") == "crash":
            raise ValueError("the shard of rank 1 is empty")
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=os.environ.get("STRATEGY", "ddp"), max_steps=STEPS, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(64, 4), batch_size=2))
