import deepspeed
import horovod.torch as hvd
from lightning.pytorch import Trainer


def of_an_engine(model, args):
    engine, _, _, _ = deepspeed.initialize(model=model, args=args)
    if args.local_rank == 0:
        engine.save_checkpoint("checkpoints")  # expect: rank-conditional-collective


def of_horovod(loss):
    if hvd.rank() == 0:
        print(hvd.allreduce(loss))  # expect: rank-conditional-collective


def of_lightning(module):
    trainer = Trainer(devices=4)
    trainer.fit(module)
    if trainer.is_global_zero:
        trainer.save_checkpoint("last.ckpt")  # expect: rank-conditional-collective


def of_fabric(fabric, state):
    if fabric.global_rank == 0:
        fabric.save("state.ckpt", state)  # expect: rank-conditional-collective
