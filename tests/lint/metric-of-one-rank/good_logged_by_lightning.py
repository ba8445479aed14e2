import lightning as L
import torch.nn.functional as F


class Classifier(L.LightningModule):
    def training_step(self, batch, number):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, number):
        out = self(batch[0])
        loss = F.cross_entropy(out, batch[1])
        self.log("val_loss", loss, sync_dist=True)
        self.val_accuracy.update(out, batch[1])
        self.log("val_accuracy", self.val_accuracy)


class Gathers(L.LightningModule):
    def validation_step(self, batch, number):
        loss = self.all_gather(F.cross_entropy(self(batch[0]), batch[1])).mean()
        self.log("val_loss", loss)
