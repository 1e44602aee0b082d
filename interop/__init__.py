"""RocketMQ's own brokers, clients and tools against ours, as real processes, one scenario a file.

`release.py` finds the released jars, `process.py` runs a program and surely ends it, `cluster.py` starts servers,
`clients.py` and `tools.py` the other side, `wire.py` speaks raw frames and `tap.py` listens on the line between two.
`go/` has the flows of the Go client, `java/suite` what lets RocketMQ's own tests run here.
The scenarios are the `test_*.py` files; those marked `short` are the form that every submission runs.
"""
