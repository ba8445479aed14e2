import os

from accelerate import Accelerator


def main(args, model, ema):
    accelerator = Accelerator()
    if accelerator.is_main_process:
        os.makedirs(args.output_dir, exist_ok=True)

    def save_model_hook(models, weights, output_dir):
        if accelerator.is_main_process:
            ema.save_pretrained(os.path.join(output_dir, "ema"))

    accelerator.register_save_state_pre_hook(save_model_hook)
