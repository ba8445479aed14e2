from project.distributed.utils import barrier


class Checkpointer:
    def finish(self, blocking=True):
        future = self.future
        if future is not None:
            if blocking or future.done():
                future.result()
                barrier()  # expect: rank-conditional-collective
                self.future = None
