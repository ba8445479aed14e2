import torch


def train(unet, text_encoder, loader, optimizer, loss_fn):
    scaler = torch.amp.GradScaler("cpu")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_fn(text_encoder(unet(x)), y)
        scaler.scale(loss).backward()
        # both parts are clipped to the same norm
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)  # expect: clip-before-unscale
        torch.nn.utils.clip_grad_norm_(text_encoder.parameters(), 1.0)  # expect: clip-before-unscale
        scaler.step(optimizer)
        scaler.update()


def train_each(models, optimizers, loader):
    scaler = torch.amp.GradScaler("cpu")
    for x in loader:
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            scaler.scale(model(x).mean()).backward()
            if len(models) > 1:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # expect: clip-before-unscale
            for parameter in model.parameters():
                torch.nn.utils.clip_grad_norm_([parameter], 0.5)  # expect: clip-before-unscale
            scaler.step(optimizer)
            scaler.update()


if __name__ == "__main__":
    layers = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    both = torch.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0.1)
    batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)]
    train(*layers, batches, both, torch.nn.functional.mse_loss)
    train_each(layers, [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in layers], [x for x, _ in batches])
