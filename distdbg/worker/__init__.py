"""Inside a rank: bootstrap, hook bus, heartbeat page. Standard library, and torch only once the script has it."""
