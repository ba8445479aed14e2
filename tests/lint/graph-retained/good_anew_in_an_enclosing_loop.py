"""What each batch makes anew holds the graphs of one batch; so does what a dictionary holds that is made anew."""


def train(model, loader, optimizer):
    for batch in loader:
        losses = []
        for part in batch:
            optimizer.zero_grad()
            loss = model(part)
            loss.backward()
            optimizer.step()
            losses.append(loss)


def by_name(model, loader, optimizer):
    for batch in loader:
        seen = {"loss": 0.0}
        optimizer.zero_grad()
        loss = model(batch)
        loss.backward()
        optimizer.step()
        seen["loss"] += loss
