"""Messages that are delivered later: by level, by time, and their requests."""
