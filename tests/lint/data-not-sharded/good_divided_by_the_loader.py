from dgl.dataloading import DataLoader
from torch.nn.parallel import DistributedDataParallel


def train(graph, nodes, sampler, model, optimizer, loss_of):
    loader = DataLoader(graph, nodes, sampler, batch_size=1024, shuffle=True, use_ddp=True)
    model = DistributedDataParallel(model)
    for batch in loader:
        optimizer.zero_grad()
        loss_of(model(batch)).backward()
        optimizer.step()
