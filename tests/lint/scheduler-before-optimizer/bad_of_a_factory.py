"""Another file makes the schedule, most likely one of torch."""

from schedules import get_schedule_linear


def train(model, loader, optimizer, steps):
    scheduler = get_schedule_linear(optimizer, 100, steps)
    for batch in loader:
        model(batch).mean().backward()
        scheduler.step()  # expect: scheduler-before-optimizer
        optimizer.step()
        optimizer.zero_grad()
