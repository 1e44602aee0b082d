"""The `bolide` command: finds the command's module and runs it.

Commands for people are click's (`app.py`), with its help and its completion. Servers have a parser of their own from
the standard library: they stay for months, and what a command needs once would stay with them.
"""

import atexit
import gc
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
# Words behind a server's name are for those that run: `bolide broker list`.
OF_RUNNING = {"broker": "brokers", "controller": "controllers", "namesrv": "namesrvs"}

INTERRUPTED = 130  # by Ctrl-C, as shells have it


def main() -> None:
    arguments = sys.argv[1:]
    try:
        name, words = "".join(arguments[:1]), arguments[1:]
        if name in SERVERS and not (name in OF_RUNNING and words and not words[0].startswith("-")):
            import_module(f"bolide.cli.{name}").main(words)
            return
        # What a command loads stays until it ends: to look through it for garbage took a tenth of its time.
        gc.set_threshold(50_000)
        # And to look through it once more while the interpreter ends took another tenth.
        atexit.register(gc.freeze)
        if name in OF_RUNNING:
            import_module(f"bolide.cli.{OF_RUNNING[name]}").main(words)
        else:
            import_module("bolide.cli.app").main(arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
