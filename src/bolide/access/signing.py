"""Signs what a server asks of other servers, with the credentials that its settings have for that."""

from collections.abc import Sequence

from bolide.access.config import AccessConfig, KeyPair
from bolide.protocol.command import Command
from bolide.protocol.signature import ACCESS_KEY, SIGNATURE, sign


class Signer:
    """A hook of the connecting side (`remoting/client.py`)."""

    def __init__(self, pair: KeyPair) -> None:
        self._pair = pair

    def before(self, address: str, command: Command) -> None:
        command.fields[ACCESS_KEY] = self._pair.access_key
        command.fields[SIGNATURE] = sign(command.fields, command.body, self._pair.secret_key)

    def after(self, address: str, command: Command, answer: Command) -> None:
        pass


def signers(config: AccessConfig) -> Sequence[Signer]:
    """The hooks of a server's client: one, or none without inner credentials."""
    pair = config.inner_pair
    return () if pair is None else (Signer(pair),)
