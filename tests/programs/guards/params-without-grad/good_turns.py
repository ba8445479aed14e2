"""A GAN's generator steps in each fifth step; its gradients are gone at every other one.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
generator = DistributedDataParallel(torch.nn.Linear(4, 4))
critic = DistributedDataParallel(torch.nn.Linear(4, 1))
of_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
of_critic = torch.optim.Adam(critic.parameters(), lr=0.01)
data = TensorDataset(torch.randn(260, 4) + dist.get_rank())
for step, (x,) in enumerate(DataLoader(data, batch_size=2)):
    of_critic.zero_grad()
    (critic(x) - critic(generator(x).detach())).square().mean().backward()
    of_critic.step()
    if step % 5 == 4:
        of_generator.zero_grad()
        critic(generator(x)).mean().backward()
        of_generator.step()
        of_generator.zero_grad()
dist.barrier()
del generator, critic
dist.destroy_process_group()
