"""Find the parts of a model by building it on torch's meta device and changing its config one leaf at a time.

Runs in a child process; nothing here knows a model type by its name.
"""
