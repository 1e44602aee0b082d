"""Shared by all tests: nothing but what most of them need."""
