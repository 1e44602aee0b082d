"""Shared by all tests: nothing but what most of them need."""

from hypothesis import settings

# How long an example takes says more of the machine's other work than of ours.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
