import deepspeed


def main(model, loader):
    engine, _, _, _ = deepspeed.initialize(model=model)
    for x in loader:
        loss = engine(x)
        engine.backward(loss)
        engine.step()
