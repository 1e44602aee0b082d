"""Who is connected: members of groups, the queues they hold, and their requests."""
