import lightning as L
import torch.nn.functional as F


class Classifier(L.LightningModule):
    def training_step(self, batch, number):
        return F.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, number):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("val_loss", loss, prog_bar=True)  # expect: metric-of-one-rank
