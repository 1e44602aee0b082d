"""The number of a replica, over crashes and in Java's files."""

import shutil
from pathlib import Path

import pytest

from bolide.broker.controlled.identity import Application, IdentityFiles, seat
from bolide.errors import StoreError


def test_a_granted_number_is_kept_as_java_keeps_it(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path, "c", "g")
    files.apply(Application(1, "127.0.0.1:10911;1700000000000"))
    assert (tmp_path / "brokerIdentity-temp").read_bytes() == b"c#g#1#127.0.0.1:10911;1700000000000"
    files.granted(1)
    assert (tmp_path / "brokerIdentity").read_bytes() == b"c#g#1"
    assert not (tmp_path / "brokerIdentity-temp").exists()
    assert IdentityFiles(tmp_path, "c", "g").replica_id() == 1


def test_an_application_outlives_a_crash_with_its_check_code(tmp_path: Path) -> None:
    IdentityFiles(tmp_path, "c", "g").apply(Application(7, "a:1;5"))
    assert IdentityFiles(tmp_path, "c", "g").application() == Application(7, "a:1;5")


def test_an_empty_directory_has_no_number_and_no_application(tmp_path: Path) -> None:
    files = IdentityFiles(tmp_path, "c", "g")
    assert files.replica_id() is None
    assert files.application() is None


@pytest.mark.parametrize(("cluster", "name"), [("other", "g"), ("c", "other")])
def test_a_directory_of_another_broker_is_refused_with_its_owner(tmp_path: Path, cluster: str, name: str) -> None:
    IdentityFiles(tmp_path, "c", "g").granted(1)
    with pytest.raises(StoreError, match=r"belongs to c g.*set brokerClusterName and brokerName"):
        IdentityFiles(tmp_path, cluster, name).replica_id()


@pytest.mark.parametrize("text", ["c#g#", "c#g#0", "c#g#-1", "c#g#x", "c#g#99999999999999999999"])
def test_a_damaged_number_is_refused_and_not_guessed(tmp_path: Path, text: str) -> None:
    (tmp_path / "brokerIdentity").write_text(text)
    with pytest.raises(StoreError, match="restore the file, or move it away"):
        IdentityFiles(tmp_path, "c", "g").replica_id()


def test_a_seat_is_that_of_one_lock_file_and_of_no_copy(tmp_path: Path) -> None:
    own, copy = tmp_path / "own", tmp_path / "copy"
    own.mkdir()
    assert seat(own) is None, "nobody has opened this store"
    (own / "lock").write_bytes(b"lock")
    shutil.copytree(own, copy)
    found = seat(own)
    assert found == seat(own) != seat(copy)
    own.rename(tmp_path / "moved")  # with a frozen broker's lock
    copy.rename(own)
    assert seat(own) != found == seat(tmp_path / "moved")
