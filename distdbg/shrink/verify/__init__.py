"""Verify that a small model's layers are the large one's, on torch's meta device, in a child process."""
