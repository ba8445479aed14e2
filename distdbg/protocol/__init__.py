"""Every message that a part of distdbg writes for another one, by name, with its fields and their types.

message.py    what a message is, and how it is read
facts.py      messages of the ranks, the lines of facts.jsonl
events.py     the lines of events.jsonl: agent_events.py and launcher_events.py
requests.py   requests to agents, and their questions to ranks
page.py       the layout of the heartbeat page; progress.py: samples of it for the detection of stalls
dump.py       the manifest of a dump, and the part of each node
"""
