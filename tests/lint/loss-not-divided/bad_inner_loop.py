class Trainer:
    def __init__(self, model, opt, loader, accumulate_every):
        self.model = model
        self.opt = opt
        self.loader = loader
        self.accumulate_every = accumulate_every

    def train(self, steps):
        for step in range(steps):
            for _ in range(self.accumulate_every):
                loss = self.model(next(self.loader))
                loss.backward()  # expect: loss-not-divided
            self.opt.step()
            self.opt.zero_grad()
