"""Every message that a part of distdbg writes for another one, by name, with its fields and their types.

`facts.py`: what ranks tell, the lines of facts.jsonl. `agent_events.py` and `launcher_events.py`: the lines of
events.jsonl; `events.py` is the registry of both. `message.py`: what a message is.
"""
