from torch.nn.parallel import DistributedDataParallel as DDP


def train(net, loader, optimizer, micro_batches):
    model = DDP(net)
    for batch in loader:
        for i in range(micro_batches):
            model.require_backward_grad_sync = i == micro_batches - 1
            loss = model(batch[i]).mean() / micro_batches
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
