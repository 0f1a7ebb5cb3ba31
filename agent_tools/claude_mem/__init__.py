"""claude-mem's worker protocol, so that its clients can use this site unchanged."""
