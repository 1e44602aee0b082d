"""The `bolide` command: finds the command's module and runs it.

Commands for people are click's (`app.py`), with its help and its completion. Servers have a parser of their own from
the standard library: they stay for months, and what a command needs once would stay with them.
"""

import sys
from importlib import import_module

SERVERS = {
    "up": "Run a name server and a broker for this machine: the way in.",
    "broker": "Run a broker: it keeps messages and hands them out.",
    "controller": "Run a controller: it elects the master of each broker name.",
    "dashboard": "Run the dashboard: a cluster in the browser.",
    "filtersrv": "Run a filter server beside a broker, for filters in Python.",
    "namesrv": "Run a name server: it tells clients where topics are.",
    "proxy": "Run a gRPC proxy: RocketMQ 5's own clients before any cluster.",
}


def main() -> None:
    arguments = sys.argv[1:]
    try:
        if arguments[:1] and arguments[0] in SERVERS:
            import_module(f"bolide.cli.{arguments[0]}").main(arguments[1:])
        else:
            import_module("bolide.cli.app").main(arguments)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
