"""With a scaler and without one, each with an `if` of its own; what is divided is for the log."""


def train(model, loader, optimizer, scaler, args):
    shown = 0.0
    for step, batch in enumerate(loader):
        loss = model(batch)
        shown += loss.item() / args.grad_accumulation
        if args.mixed_precision:
            scaler.scale(loss).backward()  # expect: loss-not-divided
            if (step + 1) % args.grad_accumulation == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        else:
            loss.backward()
            if (step + 1) % args.grad_accumulation == 0:
                optimizer.step()
                optimizer.zero_grad()
    return shown
