import lightning
import torch
from omegaconf import OmegaConf


class Run:
    def __init__(self, config, folder):
        self.config, self.folder = config, folder
        torch.manual_seed(config.seed)
        OmegaConf.save(config, f"{folder}/config.yaml")  # expect: checkpoint-race

    def train(self, module):
        trainer = lightning.Trainer(devices=self.config.devices, strategy=self.config.strategy)
        trainer.fit(module)
