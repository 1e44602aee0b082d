"""Tests of replication between brokers."""
