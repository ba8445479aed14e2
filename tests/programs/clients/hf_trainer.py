"""A Hugging Face Trainer run as its users write one. Nothing in it knows of distdbg."""

import gc
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class CountingTokens(torch.utils.data.Dataset):
    """Sequences that count upwards, so that there is something to learn."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        # here: batch
        tokens = (torch.arange(16) + index) % 50
        return {"input_ids": tokens, "labels": tokens}


def main():
    set_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    args = TrainingArguments(
        output_dir=sys.argv[1],
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=6,
        logging_steps=2,
        save_steps=3,
        learning_rate=1e-2,
        use_cpu=not torch.cuda.is_available(),
        report_to=[],
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
    )
    # here: start
    trainer = Trainer(model=model, args=args, train_dataset=CountingTokens(), eval_dataset=CountingTokens())
    result = trainer.train()
    # here: evaluation
    metrics = trainer.evaluate()
    assert result.global_step == 6
    assert metrics["eval_loss"] < 3.9, metrics  # log(50): knowing nothing
    if trainer.is_world_process_zero():
        print("CLIENT OK", trainer.args.world_size, flush=True)
    # gloo lets go of the last all-gather in a thread that needs the GIL; torch 2.13 waits for that thread with the GIL
    # held where DDP is freed at this very moment, and the rank never ends. A barrier is behind it in the same queue.
    torch.distributed.barrier()


if __name__ == "__main__":
    main()
    # What hooks into the group goes before the group: gloo can deadlock or abort where DDP's reducer is the last to go.
    gc.collect()
    torch.distributed.destroy_process_group()
