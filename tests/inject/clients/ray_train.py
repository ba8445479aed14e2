"""A driver of Ray Train on one machine: DDP by prepare_model, a report to Ray after each epoch. Needs ray[train]."""

import os
import sys

import ray
import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from torch.utils.data import DataLoader, TensorDataset


def train_loop(settings):
    torch.manual_seed(0)
    inputs = torch.randn(512, 16)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True).tanh()), batch_size=16, shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)
    net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    model = ray.train.torch.prepare_model(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["lr"])
    for epoch in range(settings["epochs"]):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            # here: step
            optimizer.step()
            optimizer.zero_grad()
        ray.train.report({"loss": loss.item()})


def main():
    passed = {name: value for name, value in os.environ.items() if name in ("DISTDBG_TEST_FOLDER", "PLANTED")}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": passed})
    TorchTrainer(
        train_loop,
        train_loop_config={"lr": 1e-2, "epochs": 4},
        scaling_config=ScalingConfig(num_workers=2),
        torch_config=TorchConfig(backend="gloo"),
        run_config=RunConfig(storage_path=sys.argv[1]),
    ).fit()
    print("CLIENT OK", 2, flush=True)


if __name__ == "__main__":
    main()
