"""That a small model's layers are the large one's, measured on torch's meta device, in a child process."""
