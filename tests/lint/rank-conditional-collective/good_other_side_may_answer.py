import torch.distributed as dist
from players import play


def learn(weights, rounds):
    for _ in range(rounds):
        games = [None] * dist.get_world_size()
        dist.gather_object(None, games, dst=0)
        dist.broadcast(weights, 0)


def play_here(weights, rounds, game):
    for _ in range(rounds):
        try:
            dist.gather_object(game(weights), None, dst=0)
            if weights is not None:
                dist.broadcast(weights, 0)
        except StopIteration:
            return


def main(weights, game):
    if dist.get_rank() == 0:
        learn(weights, 10)
    else:
        play_here(weights, 10, game)


def main_with_players_elsewhere(weights):
    if dist.get_rank() == 0:
        learn(weights, 10)
    else:
        play(weights, 10)


def main_that_leaves(weights):
    if dist.get_rank() > 0:
        play(weights, 10)
        return
    learn(weights, 10)
