from transformers import AutoModelForSequenceClassification


def main(loader, make_optimizer):
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
    optimizer = make_optimizer(model.parameters())
    for batch in loader:
        optimizer.zero_grad()
        loss = model(**batch).loss  # expect: eval-mode-wrong
        loss.backward()
        optimizer.step()
