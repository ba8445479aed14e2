"""A curriculum: the sequences are made longer with every step, and what a step leaves standing is larger each time.

Verdict: none
"""

import torch

tokens = 2048
model = torch.nn.Sequential(torch.nn.Embedding(tokens, 32), torch.nn.Linear(32, 32), torch.nn.Linear(32, tokens))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(90):
    batch = torch.randint(0, tokens, (8, 16 + 11 * step))
    logits = model(batch)
    loss = torch.nn.functional.cross_entropy(logits.view(-1, tokens), batch.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
