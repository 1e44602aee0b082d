"""Signs what leaves, for brokers with access control (RocketMQ's ACL 1.0 and auth 2.0)."""

from bolide.client.config import Credentials
from bolide.protocol.command import Command
from bolide.protocol.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, sign


class Signing:
    """A hook of the connecting side."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def before(self, address: str, command: Command) -> None:
        command.fields[ACCESS_KEY] = self._credentials.access_key
        if self._credentials.security_token:
            command.fields[SECURITY_TOKEN] = self._credentials.security_token
        command.fields[SIGNATURE] = sign(command.fields, command.body, self._credentials.secret_key)

    def after(self, address: str, command: Command, answer: Command) -> None:
        pass
