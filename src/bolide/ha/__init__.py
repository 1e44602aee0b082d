"""Copies of the log on other brokers: what a master sends, what a slave stores, and who has acknowledged how much."""
