import torch


def by_hand(args, model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    total = len(loader) * args.epochs // args.accumulation_steps
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
    for _ in range(args.epochs):
        for i, x in enumerate(loader):
            (model(x).mean() / args.accumulation_steps).backward()
            if (i + 1) % args.accumulation_steps == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()


def with_each_batch(args, model, loader):
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader) * args.epochs)
    for _ in range(args.epochs):
        for i, x in enumerate(loader):
            (model(x).mean() / args.accumulation_steps).backward()
            if (i + 1) % args.accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
            scheduler.step()
