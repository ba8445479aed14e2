from torch.utils.data import DataLoader, DistributedSampler


def main(val_set, data, model):
    val_loader = DataLoader(val_set, sampler=DistributedSampler(val_set, shuffle=False))
    for epoch in range(10):
        for batch in val_loader:
            model(batch)
