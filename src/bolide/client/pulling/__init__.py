"""Queues walked by the application itself."""
