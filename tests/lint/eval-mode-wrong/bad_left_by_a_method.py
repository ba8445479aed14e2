import torch


class ExperienceMaker:
    def __init__(self, actor, reward):
        self.actor = actor
        self.reward = reward

    @torch.no_grad()
    def make_experience(self, prompts):
        self.actor.eval()  # expect: eval-mode-wrong
        answers = self.actor(prompts)
        return answers, self.reward(answers), self.loss_scale(answers).backward

    def loss_scale(self, answers):
        return answers.mean()
