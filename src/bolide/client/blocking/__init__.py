"""The client for callers without a loop."""
