class Trainer:
    def train(self, batches):
        for batch in batches:
            self.model.loss(batch).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def evaluate(self, sentences):
        scores = []
        for batch in sentences:
            scores.append(self.model.forward(batch).argmax(-1))  # expect: eval-with-grad
        return scores
