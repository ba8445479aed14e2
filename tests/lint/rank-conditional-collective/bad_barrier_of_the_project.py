from project.distributed import barrier, get_rank


def save(model, path):
    if get_rank() == 0:
        model.save(path)
        barrier()  # expect: rank-conditional-collective
