"""The connection between the launcher and the agents of its nodes.

wire.py           JSON lines over a socket or over standard streams
meeting.py        the handshake of an agent on another host before it starts torchrun
keeper.py         the parent of such an agent
liveness.py       whether a host still answers
"""
