"""Building blocks of launch/: processes, ports, an event loop, writes that cannot block."""
