import torch


def infer(flow, vocoder, texts):
    flow.eval()
    vocoder.eval()
    with torch.no_grad():
        mel = flow.infer(texts)
        audio = vocoder.infer(mel)
    return audio.cpu().numpy()


@torch.no_grad()
def evaluate(model, batches):
    return [model(x) for x in batches]
