"""Work on whole topics and whole stores: export, replay, audit, rebuild, statistics; each a function with a session.

A function tells how far it is through `tell`, and gives back plain values; `bolide lake` shows both.
"""
