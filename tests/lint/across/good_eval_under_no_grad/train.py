import engine
import torch


def main(model, val_loader):
    with torch.inference_mode():
        return engine.evaluate(model, val_loader)
