"""The proof that two brokers know one key: what it depends on, and what it does not give away."""

from itertools import product

import pytest

from bolide.ha.frames import HANDSHAKE, TRANSFER, PlainReports
from bolide.ha.handshake import HELLO_SIZE, MAGIC, NAME_SIZE_MAX, HaKey, hello, is_proof, proof, refusal

KEY = HaKey(name="inner", secret="a secret of brokers")
SLAVE, MASTER, BINDING = b"s" * 32, b"m" * 32, b"finished"


def test_a_proof_is_of_one_key_one_side_one_pair_of_nonces_and_one_connection() -> None:
    keys = (KEY, HaKey(name="other", secret=KEY.secret), HaKey(name=KEY.name, secret="another"))
    said = list(product(keys, ("slave", "master"), (SLAVE, b"x" * 32), (MASTER, b"y" * 32), (BINDING, b"")))
    proofs = [proof(*each) for each in said]
    assert len(set(proofs)) == len(said)
    for claimed, each in zip(proofs, said, strict=True):
        assert is_proof(claimed, *each)
    assert not is_proof(proofs[0][:-1] + b"?", *said[0])
    assert not is_proof(b"", *said[0])


def test_the_secret_is_in_nothing_that_is_said_or_shown() -> None:
    said = hello(SLAVE, KEY.name) + proof(KEY, "slave", SLAVE, MASTER, BINDING) + refusal("why")
    assert KEY.secret.encode() not in said
    assert KEY.secret not in repr(KEY)


def test_what_is_said_has_a_bound_whatever_it_is_about() -> None:
    assert len(hello(SLAVE, "n" * 1_000)) == HELLO_SIZE + NAME_SIZE_MAX
    assert len(refusal("w" * 1_000)) == 2 + NAME_SIZE_MAX


def test_no_slave_of_rocketmq_can_begin_like_one_that_proves_itself() -> None:
    assert PlainReports().feed(MAGIC)[0] < 0
    assert int.from_bytes(MAGIC[:4], "big", signed=True) not in (HANDSHAKE, TRANSFER)


@pytest.mark.parametrize("name", ["", "ключ", "n" * 255])
def test_any_name_is_told_with_its_size(name: str) -> None:
    said = hello(SLAVE, name)
    assert said[HELLO_SIZE - 1] == len(said) - HELLO_SIZE
    assert said[HELLO_SIZE:].decode() == name
