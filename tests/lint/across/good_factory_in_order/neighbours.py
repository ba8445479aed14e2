from data import make_loader


def every_k(models, dataset):
    loader = make_loader(dataset, shuffle=False)
    for model in models:
        for x in loader:
            print(model(x))
