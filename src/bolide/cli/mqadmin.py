"""`bolide admin NAME`: RocketMQ's mqadmin, by its own names and short flags; each is one of our commands.

The table says how flags become words of ours: `""` is an argument, `*` several of them, `--x` an option; what two flags
say together (a key and its value) is written with both names. Flags that say nothing here are taken and left: most of
mqadmin's commands want a cluster named, and ours do what they do in all that the name servers know. Where that is more
than the one that was named, they refuse. `docs/mqadmin.md` has the same table for people.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import click

from bolide.cli.commands import Commands
from bolide.cli.exits import NOT_THERE, fail
from bolide.cli.output import look


class Ours(NamedTuple):
    """Our command for one of mqadmin's: its words, what its flags become, and what is always added."""

    words: str
    flags: Mapping[str, str] = {}
    needed: str = ""
    added: str = ""
    idle: str = ""  # flags with a value that says nothing here
    switches: Mapping[str, str] = {}  # flags without a value
    is_all: bool = False  # done in every cluster: the one that -c names must be the only one
    is_each: bool = False  # done at one broker; -c means each of a cluster
    methods: Mapping[str, "Ours"] = {}  # by -m


_ORDERS = "namesrv kv ORDER_TOPIC_CONFIG"
TABLE = {
    "addWritePerm": Ours("broker restore", {"b": ""}, "b"),
    "brokerConsumeStats": Ours("group progress", {"b": "--broker"}, "b", idle="to"),
    "brokerStatus": Ours("broker status", {"b": ""}, "b", is_each=True),
    "cleanBrokerMetadata": Ours(
        "controller clean", {"N": "", "b": "*", "a": "--address"}, "Na", idle="cn", switches={"l": "--living"}
    ),
    "cleanExpiredCQ": Ours("broker clean queues", {"b": ""}, "b", is_each=True),
    "cleanUnusedTopic": Ours("broker clean topics", {"b": ""}, "b", is_each=True),
    "cloneGroupOffset": Ours("group clone", {"s": "", "d": "", "t": "--topic"}, "sd", idle="o"),
    "clusterList": Ours("cluster", {"i": "--watch"}, added="--more", switches={"m": ""}, is_all=True),
    "consumeMessage": Ours(
        "message print", {"t": "", "b:i": "--queue", "s": "--since", "e": "--until", "c": "--limit"}, "t", idle="g"
    ),
    "consumerConnection": Ours("group show", {"g": ""}, "g", idle="b"),
    "consumerProgress": Ours("group list --more|group progress", {"g": "", "t": "--topic"}, idle="c"),
    "consumerStatus": Ours("group show", {"g": ""}, "g", idle="b"),
    "deleteExpiredCommitLog": Ours("broker clean log", {"b": ""}, "b", is_each=True),
    "deleteKvConfig": Ours("namesrv kv", {"s": "", "k": "--delete"}, "sk"),
    "deleteSubGroup": Ours("group delete", {"g": ""}, "g", "--yes", "r", is_all=True),
    "deleteTopic": Ours("topic delete", {"t": ""}, "t", "--yes", is_all=True),
    "electMaster": Ours("controller elect", {"N": "", "b": "", "a": "--address"}, "Nba", idle="cn"),
    "getBrokerConfig": Ours("broker settings", {"b": ""}, "b", is_each=True),
    "getConsumerConfig": Ours("group settings", {"g": ""}, "g", "--more"),
    "getControllerConfig": Ours("controller config", {"a": "--address"}, "a"),
    "getControllerMetaData": Ours("controller leader", {"a": "--address"}, "a"),
    "getNamesrvConfig": Ours("namesrv settings"),
    "getSyncStateSet": Ours("controller status", {"b": "", "a": "--address"}, "a"),
    "getUser": Ours("user list", {"u": ""}, "u", is_all=True),
    "haStatus": Ours("cluster", {"i": "--watch"}, is_all=True),
    "listAcl": Ours("acl list", {"r": "--resource"}, is_all=True),
    "listUser": Ours("user list", {"f": ""}, is_all=True),
    "printMsg": Ours("message print", {"t": "", "b": "--since", "e": "--until"}, "t", idle="dcl"),
    "printMsgByQueue": Ours(
        "message print", {"t": "", "a:i": "--queue", "b": "--since", "e": "--until"}, "tai", idle="dpfc"
    ),
    "producer": Ours("clients", {"g": "--group"}, idle="b"),
    "producerConnection": Ours("clients", {"g": "--group"}, "g", idle="t"),
    "queryMsgById": Ours("message get", {"i": "", "t": "--topic"}, "i", "--more", "cfu"),
    "queryMsgByKey": Ours(
        "message query", {"t": "", "k": "", "b": "--since", "e": "--until", "m": "--limit"}, "tk", idle="c"
    ),
    "queryMsgByOffset": Ours("message get", {"b:i@o": "", "t": "--topic"}, "tbio", "--more", "fr"),
    "queryMsgByUniqueKey": Ours("message get", {"i": "", "t": "--topic"}, "it", "--more", "c", {"a": ""}),
    "queryMsgTraceById": Ours("trace", {"i": "", "t": "--trace-topic"}, "i", idle="bce"),
    "resetOffsetByTime": Ours("group reset", {"g": "", "t": "--topic", "s": "--to"}, "gts", idle="fc"),
    "sendMessage": Ours("send", {"t": "", "p": "", "k": "--keys", "c": "--tags"}, "tp"),
    "skipAccumulatedMessage": Ours("group skip", {"g": "", "t": "--topic"}, "gt", idle="fc"),
    "statsAll": Ours("topic stats", {"t": ""}, added="--more"),
    "topicClusterList": Ours("topic route", {"t": ""}, "t"),
    "topicList": Ours("topic list", added="--all", switches={"c": "--more"}),
    "topicRoute": Ours("topic route", {"t": ""}, "t", switches={"l": ""}),
    "topicStatus": Ours("topic show", {"t": ""}, "t", idle="c"),
    "updateBrokerConfig": Ours("broker set", {"b": "", "k=v": ""}, "bkv", idle="a", is_each=True),
    "updateControllerConfig": Ours("controller config", {"k=v": "", "a": "--address"}, "kva"),
    "updateKvConfig": Ours("namesrv kv", {"s": "", "k=v": ""}, "skv"),
    "updateNamesrvConfig": Ours("namesrv set", {"k=v": ""}, "kv"),
    "updateOrderConf": Ours(
        _ORDERS,
        methods={
            "put": Ours(_ORDERS, {"t=v": ""}, "tv"),
            "get": Ours(_ORDERS, idle="tv"),
            "delete": Ours(_ORDERS, {"t": "--delete"}, "t", idle="v"),
        },
    ),
    "updateSubGroup": Ours(
        "group set", {"g": "", "r": "--retry-max", "q": "--retry-queues", "s": "--consume"}, "g", is_all=True
    ),
    "updateTopic": Ours(
        "topic set",
        {"t": "", "w": "--queues", "r": "--read-queues", "p": "--permission", "c": "--cluster", "b": "--broker"},
        "t",
        "--create",
    ),
    "updateTopicPerm": Ours(
        "topic set", {"t": "", "p": "--permission", "c": "--cluster", "b": "--broker"}, "tp", "--yes"
    ),
    "wipeWritePerm": Ours("broker drain", {"b": ""}, "b"),
}
_PERMISSIONS = {"2": "w", "4": "r", "6": "rw"}
_LONG = {"N": "bn"}  # the one flag of two letters
_TIMES = {"--since", "--until", "--to"}
_SPELLED = {"now": "now", "-1": "latest"}


def translated(name: str, words: list[str]) -> list[str]:
    """Our command for mqadmin's with these flags; raises UsageError for a flag that it has not."""
    ours = _chosen(name, words)
    given, passed = _flags(name, ours, words)
    if missing := [flag for flag in ours.needed if flag not in given]:
        raise click.UsageError(f"{name} needs -{' and -'.join(_LONG.get(flag, flag) for flag in missing)}")
    forms = ours.words.split("|")
    arguments: list[str] = []
    options: list[str] = []
    for flags, target in ours.flags.items():
        if all(flag in given for flag in flags if flag.isalpha()):
            text = "".join(given[letter] if letter.isalpha() else letter for letter in flags)
            if target in ("", "*"):
                arguments += text.split(";") if target else [text]
            else:
                options += _option(target, text)
    first = forms[-1 if arguments or options else 0].split()
    return [*first, *arguments, *options, *ours.added.split(), *passed]


def _chosen(name: str, words: list[str]) -> Ours:
    ours = TABLE[name]
    if not ours.methods or {"-h", "--help"} & set(words):
        return ours
    method = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    if method not in ours.methods:
        raise click.UsageError(f"{name} needs -m: {', '.join(ours.methods)}")
    return ours.methods[method]._replace(idle=ours.methods[method].idle + "m")


def _flags(name: str, ours: Ours, words: list[str]) -> tuple[dict[str, str], list[str]]:
    known = {flag for flags in ours.flags for flag in flags if flag.isalpha()} | set(ours.idle)
    known |= {"c"} if ours.is_all or ours.is_each else set()
    given: dict[str, str] = {}
    passed: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        flag = next((letter for letter, spelled in _LONG.items() if word == f"-{spelled}"), word.removeprefix("-"))
        if word in ("-h", "--help"):
            passed.append("--help")
        elif flag in ours.switches:
            passed += ours.switches[flag].split()
        elif len(flag) == 1 and flag in known and left:
            given[flag] = left.pop(0)
        elif flag in ("n", "o") and left:
            passed += [word, left.pop(0)]
        elif word.startswith("--"):  # one of ours; its value, if it has one, is no flag
            passed += [word, *([left.pop(0)] if left and not left[0].startswith("-") else [])]
        else:
            flags = ", ".join(f"-{_LONG.get(each, each)}" for each in sorted(known | ours.switches.keys())) or "none"
            raise click.UsageError(f"{name} has no flag {word} here; it has {flags}, and -n for the name servers")
    return given, passed


def _option(target: str, text: str) -> list[str]:
    if target == "--consume":
        return ["--consume" if text.lower() == "true" else "--no-consume"]
    if target == "--permission":
        return [target, _PERMISSIONS.get(text, text)]
    return [target, _time(text) if target in _TIMES else text]


def _time(text: str) -> str:
    """mqadmin writes 2026-05-01#12:00:00:000, or milliseconds, which `group reset --to` would take for an offset."""
    if text.isdecimal():
        return datetime.fromtimestamp(int(text) / 1000, UTC).isoformat(timespec="milliseconds")
    text = _SPELLED.get(text, text)
    day, hash_, rest = text.partition("#")
    return f"{day}T{'.'.join(rest.rsplit(':', 1)) if rest.count(':') == 3 else rest}" if hash_ else text


class _Command(click.Command):
    """One of mqadmin's: its words are translated, and ours answers."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.args = args
        return args

    def invoke(self, context: click.Context) -> None:
        from bolide.cli.app import app as ours

        name = str(self.name)
        for given in _of_each_broker(name, context.args):
            words = translated(name, given)
            _demand_only(name, given, words)
            ours.main(words, prog_name="bolide", standalone_mode=False)


def _of_each_broker(name: str, given: list[str]) -> list[list[str]]:
    """What is done at one broker, and was asked for a cluster, once for each of its masters."""
    if not TABLE[name].is_each or "-b" in given or "-c" not in given[:-1]:
        return [given]
    wanted = given[given.index("-c") + 1]
    known = look(_namesrv_of(given), lambda admin: admin.clusters())
    found = [data for data in known.broker_addr_table.values() if data.cluster == wanted]
    if not found:
        fail(f"cluster {wanted} is not known here; there are: {', '.join(known.cluster_addr_table)}", NOT_THERE)
    return [[*given, "-b", data.broker_addrs[min(data.broker_addrs)]] for data in found]


def _namesrv_of(words: list[str]) -> str | None:
    return words[words.index("-n") + 1] if "-n" in words[:-1] else None


def _demand_only(name: str, given: list[str], words: list[str]) -> None:
    """Refuse where a cluster is named, and the name servers know others, in which ours would do it, too."""
    if not TABLE[name].is_all or "-c" not in given[:-1] or "--help" in words:
        return
    wanted = given[given.index("-c") + 1]
    found = set(look(_namesrv_of(words), lambda admin: admin.clusters()).cluster_addr_table)
    if found != {wanted}:
        raise click.UsageError(
            f"{name} does it in every cluster that the name servers know, not in {wanted} alone: {', '.join(found)}"
        )


app = Commands("The commands of RocketMQ's mqadmin, by their own names and flags.")
for each, told in TABLE.items():
    app.add_command(_Command(each, short_help=f"bolide {told.words.replace('|', ' or ')}"))
