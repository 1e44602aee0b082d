"""The messages of messages.proto as classes, in a pool of our own; messages.pyi tells their types.

A user's process may hold RocketMQ's Python client, whose modules register the same names in protobuf's common pool. Two
files of one name in one pool are an error, so ours stay out of it. The bytes in `descriptors.py` are what protoc makes
of messages.proto (`python -m tests.proxy.regenerate`).
"""

from base64 import b85decode
from zlib import decompress

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

from bolide.proxy.descriptors import COMPRESSED

_pool = DescriptorPool()
for _file in FileDescriptorSet.FromString(decompress(b85decode("".join(COMPRESSED.split())))).file:
    _pool.Add(_file)

DESCRIPTOR = _pool.FindFileByName("messages.proto")
for _name, _message in DESCRIPTOR.message_types_by_name.items():
    globals()[_name] = GetMessageClass(_message)
for _name, _enum in DESCRIPTOR.enum_types_by_name.items():
    globals()[_name] = EnumTypeWrapper(_enum)
    globals().update({value.name: value.number for value in _enum.values})
