"""Ray Train on one machine: each worker trains in a thread of its own, and the driver is no rank."""

import os
import sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train_loop():
    from steps import train

    train(ray.train.get_context().get_world_rank())


if __name__ == "__main__":
    passed = {name: os.environ[name] for name in ("FAULT", "STEPS", "DISTDBG_TEST_FOLDER") if name in os.environ}
    passed["PYTHONPATH"] = str(Path(__file__).parent)
    ray.init(num_cpus=3, include_dashboard=False, runtime_env={"env_vars": passed}, _temp_dir=sys.argv[1])
    TorchTrainer(
        train_loop,
        scaling_config=ScalingConfig(num_workers=2),
        torch_config=TorchConfig(backend="gloo"),
        run_config=RunConfig(storage_path=sys.argv[1]),
    ).fit()
