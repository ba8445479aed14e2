"""What a model is made of, found by building it on torch's meta device and changing its config a leaf at a time.

Runs in a child process; nothing here knows a model type by its name.
"""
