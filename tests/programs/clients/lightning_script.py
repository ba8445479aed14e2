"""A Lightning script as its users start it under torchrun: nodes and devices come from torchrun's environment."""

import gc
import os
import sys
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))

    def training_step(self, batch, batch_idx):
        # here: step
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        # here: loss
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        # here: evaluation
        self.log("validation_loss", torch.nn.functional.mse_loss(self.net(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main():
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    lightning.seed_everything(0)
    inputs = torch.randn(256, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh())
    # here: start
    trainer = lightning.Trainer(
        accelerator="auto",
        strategy="ddp",
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        max_epochs=3,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        log_every_n_steps=2,
        enable_progress_bar=False,
        logger=False,
        default_root_dir=sys.argv[1],
    )
    trainer.fit(Regression(), DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8))
    assert trainer.world_size == int(os.environ["WORLD_SIZE"])
    assert trainer.callback_metrics["validation_loss"] < 0.4, trainer.callback_metrics
    if trainer.is_global_zero:
        print("CLIENT OK", trainer.world_size, flush=True)


if __name__ == "__main__":
    main()
    # What hooks into the group goes before the group: gloo can deadlock or abort where DDP's reducer is the last to go.
    gc.collect()
    torch.distributed.destroy_process_group()
