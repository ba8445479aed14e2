import torch


def main(model, parameters, loader, optimizer):
    scaler = torch.amp.GradScaler("cpu")
    for x in loader:
        optimizer.zero_grad()
        scaler.scale(model(x)).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)  # expect: clip-before-unscale
        scaler.step(optimizer)
        scaler.update()


if __name__ == "__main__":
    layer = torch.nn.Linear(4, 1)
    main(
        lambda x: layer(x).mean(),
        [*layer.parameters()],
        [torch.randn(8, 4)] * 3,
        torch.optim.SGD(layer.parameters(), lr=0.1),
    )
