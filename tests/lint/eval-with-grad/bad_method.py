class Trainer:
    def __init__(self, model):
        self.model = model

    def validate(self, loader):
        self.model.eval()
        for batch in loader:  # expect: eval-with-grad
            out = self.model.forward(batch)
            print(out.argmax())
