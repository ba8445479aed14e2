"""What the other rooms of launch/ are built on: processes, ports, an event loop, writes that cannot block."""
