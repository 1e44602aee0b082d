"""Make `descriptors.py` and `messages.pyi` of messages.proto; takes `pip install grpcio-tools`, which has protoc.

python -m tests.proxy.regenerate
"""

import re
import subprocess
import sys
import tempfile
from base64 import b85encode
from pathlib import Path
from textwrap import wrap
from zlib import compress

from tests.tidy.source import PACKAGE

ROOM = PACKAGE / "proxy"
HEAD = '"""What protoc makes of messages.proto, compressed; made by `python -m tests.proxy.regenerate`."""\n'


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOM}", "--include_imports"]
        subprocess.run([*protoc, f"--descriptor_set_out={made}/set", f"--pyi_out={made}", "messages.proto"], check=True)
        descriptors = Path(made, "set").read_bytes()
        stub = Path(made, "messages_pb2.pyi").read_text("utf-8")
    lines = "\n".join(wrap(b85encode(compress(descriptors, 9)).decode(), 116))
    (ROOM / "descriptors.py").write_text(f'{HEAD}\nCOMPRESSED = r"""\n{lines}\n"""\n', "utf-8")
    (ROOM / "messages.pyi").write_text(re.sub(r"\n{3,}", "\n\n", stub), "utf-8")


if __name__ == "__main__":
    main()
