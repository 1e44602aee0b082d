"""`bolide admin NAME`: RocketMQ's mqadmin, by its own names and short flags; each is one of our commands.

The table says how flags become words of ours: `""` is an argument, `--x` an option; what two flags say together (a key
and its value) is written with both names. Flags that say nothing here are taken and left: most of mqadmin's commands
want a cluster named, and ours do what they do in all that the name servers know. Where that is more than the one that
was named, they refuse. `docs/mqadmin.md` has the same table for people.
"""

from collections.abc import Mapping
from typing import NamedTuple

import click

from bolide.cli.commands import Commands


class Ours(NamedTuple):
    """Our command for one of mqadmin's: its words, what its flags become, and what is always added."""

    words: str
    flags: Mapping[str, str] = {}
    needed: str = ""
    added: str = ""
    idle: str = ""


TABLE = {
    "addWritePerm": Ours("broker restore", {"b": ""}, "b"),
    "brokerStatus": Ours("broker status", {"b": ""}, "b"),
    "cleanBrokerMetadata": Ours("controller clean", {"n": "", "b": "", "a": "--address"}, "n"),
    "cloneGroupOffset": Ours("group clone", {"s": "", "d": "", "t": "--topic"}, "sd"),
    "clusterList": Ours("cluster"),
    "consumeMessage": Ours("message print", {"t": "", "s": "--since", "e": "--until", "c": "--limit"}, "t"),
    "consumerConnection": Ours("group show", {"g": ""}, "g"),
    "consumerProgress": Ours("group list|group progress", {"g": ""}),
    "deleteKvConfig": Ours("namesrv kv", {"s": "", "k": "--delete"}, "sk"),
    "deleteSubGroup": Ours("group delete", {"g": ""}, "g", "--yes", "c"),
    "deleteTopic": Ours("topic delete", {"t": ""}, "t", "--yes", "c"),
    "electMaster": Ours("controller elect", {"n": "", "b": "", "a": "--address"}, "nb"),
    "getBrokerConfig": Ours("broker settings", {"b": ""}, "b"),
    "getConsumerConfig": Ours("group settings", {"g": ""}, "g"),
    "getControllerConfig": Ours("controller config", {"a": "--address"}, "a"),
    "getControllerMetaData": Ours("controller leader", {"a": "--address"}, "a"),
    "getNamesrvConfig": Ours("namesrv settings"),
    "getSyncStateSet": Ours("controller status", {"b": "", "a": "--address"}, "a"),
    "getUser": Ours("user list", {"u": ""}, "u", "", "c"),
    "haStatus": Ours("cluster", {}, "", "", "c"),
    "listAcl": Ours("acl list", {"r": "--resource"}, "", "", "c"),
    "listUser": Ours("user list", {"f": ""}, "", "", "c"),
    "printMsg": Ours("message print", {"t": "", "b": "--since", "e": "--until"}, "t", "", "d"),
    "printMsgByQueue": Ours(
        "message print", {"t": "", "a:i": "--queue", "b": "--since", "e": "--until"}, "tai", "", "dpf"
    ),
    "producer": Ours("clients", {"g": "--group"}, "", "", "b"),
    "producerConnection": Ours("clients", {"g": "--group"}, "g", "", "t"),
    "queryMsgById": Ours("message get", {"i": "", "t": "--topic"}, "i"),
    "queryMsgByKey": Ours("message query", {"t": "", "k": "", "b": "--since", "e": "--until", "m": "--limit"}, "tk"),
    "queryMsgByOffset": Ours("message get", {"b:i@o": "", "t": "--topic"}, "tbio"),
    "queryMsgByUniqueKey": Ours("message get", {"i": "", "t": "--topic"}, "it"),
    "queryMsgTraceById": Ours("trace", {"i": "", "t": "--trace-topic"}, "i"),
    "resetOffsetByTime": Ours("group reset", {"g": "", "t": "--topic", "s": "--to"}, "gts", "", "f"),
    "sendMessage": Ours("send", {"t": "", "p": "", "k": "--keys", "c": "--tags"}, "tp"),
    "skipAccumulatedMessage": Ours("group skip", {"g": "", "t": "--topic"}, "gt", "", "f"),
    "statsAll": Ours("topic stats", {"t": ""}),
    "topicClusterList": Ours("topic route", {"t": ""}, "t"),
    "topicList": Ours("topic list", {}, "", "--all"),
    "topicRoute": Ours("topic route", {"t": ""}, "t"),
    "topicStatus": Ours("topic show", {"t": ""}, "t", "", "c"),
    "updateBrokerConfig": Ours("broker set", {"b": "", "k=v": ""}, "bkv"),
    "updateControllerConfig": Ours("controller config", {"k=v": "", "a": "--address"}, "kva"),
    "updateKvConfig": Ours("namesrv kv", {"s": "", "k=v": ""}, "skv"),
    "updateNamesrvConfig": Ours("namesrv set", {"k=v": ""}, "kv"),
    "updateSubGroup": Ours("group set", {"g": "", "r": "--retry-max", "q": "--retry-queues"}, "g", "", "c"),
    "updateTopic": Ours("topic create", {"t": "", "w": "--queues", "c": "--cluster"}, "t", "", "r"),
    "updateTopicPerm": Ours("topic set", {"t": "", "p": "--permission", "c": "--cluster"}, "tp", "--yes"),
    "wipeWritePerm": Ours("broker drain", {"b": ""}, "b"),
}
_PERMISSIONS = {"2": "w", "4": "r", "6": "rw"}
_TIMES = {"--since", "--until", "--to"}
_SPELLED = {"now": "now", "-1": "latest"}


def translated(name: str, words: list[str]) -> list[str]:
    """Our command for mqadmin's with these flags; raises UsageError for a flag that it has not."""
    ours = TABLE[name]
    given, passed = _flags(name, ours, words)
    if missing := [flag for flag in ours.needed if flag not in given]:
        raise click.UsageError(f"{name} needs -{' and -'.join(missing)}")
    chosen = ours.words.split("|")
    first = chosen[1 if given and len(chosen) > 1 else 0].split()
    if "r" in ours.idle and given.get("r", given.get("w")) != given.get("w"):
        raise click.UsageError(
            f"{name}: queues to read (-r) and to write (-w) begin alike; `bolide topic set` parts them"
        )
    arguments: list[str] = []
    options: list[str] = []
    for flags, target in ours.flags.items():
        text = flags
        for flag in filter(str.isalpha, flags):
            if flag not in given:
                break
            text = text.replace(flag, given[flag], 1) if len(flags) > 1 else given[flag]
        else:
            arguments += [text] if not target else []
            options += [target, _value(target, text)] if target else []
    added = ours.added.split()
    return [*first, *arguments, *options, *added, *passed]


def _flags(name: str, ours: Ours, words: list[str]) -> tuple[dict[str, str], list[str]]:
    known = {flag for flags in ours.flags for flag in flags if flag.isalpha()} | set(ours.idle)
    given: dict[str, str] = {}
    passed: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        flag = word.removeprefix("-")
        if word in ("-h", "--help"):
            passed.append("--help")
        elif len(flag) == 1 and flag in known and left:
            given[flag] = left.pop(0)
        elif (flag in ("n", "o") or word.startswith("--")) and left:  # those of ours
            passed += [word, left.pop(0)]
        else:
            flags = ", ".join(f"-{each}" for each in sorted(known)) or "none"
            raise click.UsageError(f"{name} has no flag {word} here; it has {flags}, and -n for the name servers")
    return given, passed


def _value(target: str, text: str) -> str:
    if target == "--permission":
        return _PERMISSIONS.get(text, text)
    if target in _TIMES:
        text = _SPELLED.get(text, text)
        # mqadmin writes 2026-05-01#12:00:00:000
        day, hash_, rest = text.partition("#")
        return f"{day}T{'.'.join(rest.rsplit(':', 1)) if rest.count(':') == 3 else rest}" if hash_ else text
    return text


class _Command(click.Command):
    """One of mqadmin's: its words are translated, and ours answers."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.args = args
        return args

    def invoke(self, context: click.Context) -> None:
        from bolide.cli.app import app as ours

        words = translated(str(self.name), context.args)
        _demand_only(str(self.name), context.args, words)
        ours.main(words, prog_name="bolide", standalone_mode=False)


def _demand_only(name: str, given: list[str], words: list[str]) -> None:
    """Refuse where a cluster is named, and the name servers know others, in which ours would do it, too."""
    if "c" not in TABLE[name].idle or "-c" not in given or "--help" in words:
        return
    from bolide.cli.output import look

    wanted = given[given.index("-c") + 1]
    namesrv = words[words.index("-n") + 1] if "-n" in words else None
    found = set(look(namesrv, lambda admin: admin.clusters()).cluster_addr_table)
    if found != {wanted}:
        raise click.UsageError(
            f"{name} does it in every cluster that the name servers know, not in {wanted} alone: {', '.join(found)}"
        )


app = Commands("The commands of RocketMQ's mqadmin, by their own names and flags.")
for each, told in TABLE.items():
    app.add_command(_Command(each, short_help=f"bolide {told.words.replace('|', ' or ')}"))
