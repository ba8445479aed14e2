import torch


class Critic(torch.nn.Module):
    def score(self, x):
        return self.net(x).detach()  # expect: eval-with-grad

    def forward(self, x):
        return self.net(x) - self.score(x)


class Online(torch.nn.Module):
    def forward(self, one, other):
        wanted = self.target_encoder(other)  # expect: eval-with-grad
        return torch.nn.functional.mse_loss(self.encoder(one), wanted.detach())

    def embed(self, windows):
        found = []
        for window in windows:
            out = self(window, window)  # expect: eval-with-grad
            found.append(out.detach().cpu().numpy())
        return found


def loss_of(model, x):
    wanted = model(x).detach()  # expect: eval-with-grad
    return torch.nn.functional.mse_loss(model(x + 1), wanted)


def accuracy_of(net, images, labels):
    scores = torch.softmax(net.forward_features(images), 1)  # expect: eval-with-grad
    return (scores.argmax(1) == labels).sum()


def both_of(net, images):
    scores, features = net(images)  # expect: eval-with-grad
    return scores.argmax(1), features[:, 0].detach()
