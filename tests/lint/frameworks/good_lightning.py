import lightning as L
import torch
from torch.utils.data import DataLoader, DistributedSampler


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def training_step(self, batch, index):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(data):
    loader = DataLoader(data, sampler=DistributedSampler(data))
    trainer = L.Trainer(max_epochs=3, accumulate_grad_batches=4)
    trainer.fit(Net(), loader)
