import torch


def infer(flow, vocoder, texts):
    flow.eval()
    vocoder.eval()
    with torch.no_grad():
        mel = flow.infer(texts)
    audio = vocoder.infer(mel)  # expect: eval-with-grad
    return audio.cpu().numpy()
