class Both:
    def __init__(self, optimizer, scheduler):
        self.optimizer = optimizer
        self.scheduler = scheduler

    def step(self):
        self.optimizer.step()
        self.scheduler.step()

    def at_the_end_of_an_epoch(self, epoch):
        self.scheduler.step(epoch)
        self.optimizer.step()
