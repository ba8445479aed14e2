from transformers import Trainer, TrainingArguments


class Mine(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        loss = model(**inputs).loss
        self.losses.append(loss.detach())
        return loss


def main(model, data):
    trainer = Mine(model=model, args=TrainingArguments("out", gradient_accumulation_steps=4), train_dataset=data)
    trainer.train()
    trainer.save_model("out")
