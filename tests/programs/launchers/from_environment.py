"""A script of torchrun, `accelerate launch`, `deepspeed` and srun: its number is in the environment."""

import os

from steps import train

if "RANK" not in os.environ:  # srun
    os.environ |= {"RANK": os.environ["SLURM_PROCID"], "WORLD_SIZE": os.environ["SLURM_NTASKS"]}
train(int(os.environ["RANK"]))
