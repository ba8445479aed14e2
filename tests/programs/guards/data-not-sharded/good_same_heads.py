"""Every sample begins with the same prompt, and every image has the same border: the ranks' parts differ behind that.

Guard: none
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
draw = torch.Generator().manual_seed(0)
images = torch.zeros(16, 1, 32, 32)
images[:, :, 10:22, 10:22] = torch.randn(16, 1, 12, 12, generator=draw)
words = torch.cat([torch.arange(300).expand(16, 300) % 97, torch.randint(0, 97, (16, 40), generator=draw)], 1)
image_model, word_model = torch.nn.Conv2d(1, 1, 3), torch.nn.Embedding(97, 4)
for data, net in ((images, image_model), (words, word_model)):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (x,) in DataLoader(TensorDataset(data[rank::ranks]), batch_size=2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    del model
dist.barrier()
dist.destroy_process_group()
