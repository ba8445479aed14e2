"""Inside a rank: the bootstrap, the hook bus, the heartbeat page. Standard library, and torch only once the script has it."""
