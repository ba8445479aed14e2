"""The hook bus: which events of torch there are, how they are heard, and how they reach their subscribers."""
