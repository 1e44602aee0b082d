"""Members of a consumer group: their queues, what they pull, and the verdicts on it."""
