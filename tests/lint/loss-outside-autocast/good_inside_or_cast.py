import torch
import torch.nn.functional as F
from torch import nn

mse = nn.MSELoss()


def inside(model, loader, optimizer):
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(images)
            loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()


def cast(model, loader, optimizer):
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(images)
        loss = F.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()


def cast_in_a_line_of_its_own(model, loader, optimizer):
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(images)
        logits = logits.float()
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()


def the_target_s_type_decides(model, loader, optimizer):
    for images, clean in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            output = model(images)
        loss = mse(output, clean)
        loss.backward()
        optimizer.step()
