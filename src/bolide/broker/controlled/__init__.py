"""Brokers whose role a controller gives: joining a group, leading it, following."""
