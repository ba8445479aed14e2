import deepspeed
import horovod.torch as hvd
from lightning.pytorch import Trainer


def of_an_engine(model, args):
    engine, _, _, _ = deepspeed.initialize(model=model, args=args)
    engine.save_checkpoint("checkpoints")
    if args.local_rank == 0:
        print("saved")


def of_horovod(loss):
    mean = hvd.allreduce(loss)
    if hvd.rank() == 0:
        print(mean)


def of_lightning(module):
    trainer = Trainer(devices=4)
    trainer.fit(module)
    trainer.save_checkpoint("last.ckpt")


def of_fabric(fabric, state):
    fabric.save("state.ckpt", state)
    if fabric.global_rank == 0:
        print("saved")
