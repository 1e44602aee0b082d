"""The KV configuration and its file."""

import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bolide.errors import Refusal, StoreError
from bolide.namesrv.kv import KvConfig, parse_table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def test_nothing_is_there_and_nothing_is_written_before_the_first_put(path: Path) -> None:
    kv = KvConfig(path)
    assert kv.get("ns", "k") is None
    assert kv.namespace("ns") is None
    assert not path.parent.exists()


@pytest.mark.feature("F033")
def test_what_was_put_is_there_after_a_restart(path: Path) -> None:
    KvConfig(path).put("ns", "k", "v")
    kv = KvConfig(path)
    assert kv.get("ns", "k") == "v"
    assert kv.namespace("ns") == {"k": "v"}


def test_the_file_is_the_one_java_writes_and_bak_has_the_previous(path: Path) -> None:
    kv = KvConfig(path)
    kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4;broker-b:4")
    kv.put("ns", "ключ", "значение")
    assert json.loads(path.read_text("utf-8")) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"T": "broker-a:4;broker-b:4"}, "ns": {"ключ": "значение"}}
    }
    backup = json.loads(path.with_name("kvConfig.json.bak").read_text("utf-8"))
    assert backup == {"configTable": {"ORDER_TOPIC_CONFIG": {"T": "broker-a:4;broker-b:4"}}}
    assert sorted(os.listdir(path.parent)) == ["kvConfig.json", "kvConfig.json.bak"]


@pytest.mark.parametrize(
    "text",
    [
        '{"configTable":{"ns":{"k":"1"}}}',
        '{\n\t"configTable":{\n\t\t"ns":{\n\t\t\t"k":"1"\n\t\t}\n\t}\n}',
        "{'configTable':{ns:{k:'1',}}}",
        '{"configTable":{"ns":{"k":1}}}',
    ],
)
def test_a_file_of_java_is_read_pretty_or_loose(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text, "utf-8")
    assert KvConfig(path).get("ns", "k") == "1"


def test_deleting_the_last_key_leaves_an_empty_namespace_and_an_unknown_key_is_no_error(path: Path) -> None:
    kv = KvConfig(path)
    kv.put("ns", "k", "v")
    kv.delete("ns", "k")
    kv.delete("ns", "k")
    kv.delete("other", "k")
    assert kv.namespace("ns") == {}
    assert kv.namespace("other") is None
    assert KvConfig(path).namespace("ns") == {}


@pytest.mark.parametrize(("namespace", "key"), [("", "k"), ("ns", "")])
def test_a_put_without_namespace_or_key_is_refused_with_1(path: Path, namespace: str, key: str) -> None:
    with pytest.raises(Refusal) as caught:
        KvConfig(path).put(namespace, key, "v")
    assert caught.value.code == 1


@pytest.mark.parametrize("broken", ["{", "[]", '{"configTable":{"ns":3}}', "\x00\x01", "42"])
def test_a_broken_file_gives_way_to_its_backup_and_is_set_aside(path: Path, broken: str) -> None:
    kv = KvConfig(path)
    kv.put("ns", "k", "old")
    kv.put("ns", "k", "new")
    path.write_text(broken, "utf-8")
    kv = KvConfig(path)
    assert kv.get("ns", "k") == "old"
    assert path.with_name("kvConfig.json.broken").read_text("utf-8") == broken
    kv.put("ns", "k", "newer")
    assert KvConfig(path).get("ns", "k") == "newer"


@pytest.mark.parametrize("emptied", [b"", b"  \n", None])
def test_an_empty_or_missing_file_gives_way_to_its_backup(path: Path, emptied: bytes | None) -> None:
    kv = KvConfig(path)
    kv.put("ns", "k", "old")
    kv.put("ns", "k", "new")
    if emptied is None:
        path.unlink()
    else:
        path.write_bytes(emptied)
    assert KvConfig(path).get("ns", "k") == "old"


def test_a_crash_after_the_temporary_file_loses_nothing(path: Path) -> None:
    KvConfig(path).put("ns", "k", "v")
    path.with_name("kvConfig.json.tmp").write_text('{"configTable":{"ns":{"k":"half', "utf-8")
    assert KvConfig(path).get("ns", "k") == "v"


def test_nothing_readable_stops_the_start_and_throws_nothing_away(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{broken", "utf-8")
    path.with_name("kvConfig.json.bak").write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match="move it away"):
        KvConfig(path)
    assert path.read_text("utf-8") == "{broken"


def test_a_change_that_cannot_be_written_did_not_happen(path: Path) -> None:
    kv = KvConfig(path)
    kv.put("ns", "k", "v")
    path.with_name("kvConfig.json.tmp").mkdir()  # the place of the new text is taken
    with pytest.raises(StoreError, match="could not be written"):
        kv.put("ns", "k", "w")
    with pytest.raises(StoreError, match="could not be written"):
        kv.delete("ns", "k")
    assert kv.get("ns", "k") == "v"
    assert KvConfig(path).get("ns", "k") == "v"


@pytest.mark.feature("F038")
def test_everything_is_printed_and_very_much_is_cut(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps({"configTable": {"ns": {f"k{i}": "v" for i in range(1002)}}}), "utf-8")
    with caplog.at_level(logging.INFO, "bolide.namesrv.kv"):
        KvConfig(path).print()
    assert "namespaces=1 keys=1002" in caplog.messages[0]
    assert caplog.messages[1] == "kv entry namespace='ns' key='k0' value='v'"
    assert caplog.messages[-1] == "kv entries not shown count=2"


def test_the_new_text_is_on_disk_before_it_takes_the_files_place_and_the_directory_after(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note(place: Path, event: str) -> None:
        if place.is_relative_to(path.parent):  # other servers of this process write their files too
            events.append(event)

    def noted_fsync(descriptor: int) -> None:
        synced = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        note(synced, f"sync {synced.name}")
        fsync(descriptor)

    def noted_replace(source: Path, target: Path) -> Path:
        note(source, f"{source.name} becomes {target.name}")
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    kv = KvConfig(path)
    kv.put("ns", "k", "v")
    events.clear()
    kv.put("ns", "k", "w")
    assert events == [
        "sync kvConfig.json.tmp",
        "kvConfig.json becomes kvConfig.json.bak",
        "kvConfig.json.tmp becomes kvConfig.json",
        "sync namesrv",
    ]


def test_the_table_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolide.namesrv.kv.SIZE_MAX", 100)
    kv = KvConfig(path)
    kv.put("ns", "k", "v")
    with pytest.raises(Refusal, match="would exceed"):
        kv.put("ns", "k2", "v" * 100)
    assert kv.namespace("ns") == {"k": "v"}


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), texts, texts, texts), max_size=6))
def test_the_file_always_holds_the_table(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple]) -> None:
    path = tmp_path_factory.mktemp("kv") / "kv.json"
    kv = KvConfig(path)
    model: dict[str, dict[str, str]] = {}
    for is_put, namespace, key, value in steps:
        if is_put:
            kv.put(namespace, key, value)
            model.setdefault(namespace, {})[key] = value
        else:
            kv.delete(namespace, key)
            model.get(namespace, {}).pop(key, None)
        assert {namespace: dict(kv.namespace(namespace) or {}) for namespace in model} == model
        assert (parse_table(path.read_text("utf-8")) if path.exists() else {}) == model
