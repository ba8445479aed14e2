import tqdm
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(model, optimizer, train_data, valid_data, epochs):
    train_sampler = DistributedSampler(train_data)
    valid_sampler = DistributedSampler(valid_data)
    train_loader = DataLoader(train_data, sampler=train_sampler)
    valid_loader = DataLoader(valid_data, sampler=valid_sampler)
    model = DistributedDataParallel(model)
    for epoch in range(epochs):
        train_sampler.set_epoch(epoch)
        model.train()
        with tqdm.tqdm(train_loader) as bar:
            for x, y in bar:
                optimizer.zero_grad()
                model(x, y).backward()
                optimizer.step()
        with tqdm.tqdm(valid_loader) as bar:
            for x, y in bar:
                print(x, y)
