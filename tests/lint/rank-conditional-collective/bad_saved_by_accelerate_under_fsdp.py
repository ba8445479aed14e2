from accelerate import Accelerator, FullyShardedDataParallelPlugin


def main(model):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = accelerator.prepare(model)
    if accelerator.is_main_process:
        accelerator.save_state("state")  # expect: rank-conditional-collective


def by_all_ranks(model, sharded):
    accelerator = Accelerator()
    model = accelerator.prepare(model)
    if accelerator.is_main_process or sharded:
        accelerator.save_state("state")
