"""The first programs of docs/grpc.md, as they stand there, at `bolide up`; only the address is another."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.cluster import SOURCE, bolide_up
from interop.process import running
from interop.release import GRPC_JAVA_RELEASE, HERE, grpc_node, grpc_python, jars

PAGE = SOURCE.parent / "docs" / "grpc.md"
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("first")
    with bolide_up(directory, {"grpcServerPort": 0}) as up:
        words = ["topic", "create", "Orders", "--type", "NORMAL", "-n", up.name_servers]
        command = [sys.executable, "-c", "from bolide.cli.main import main; main()", *words]
        subprocess.run(command, check=True, timeout=LIMIT_S, env={**os.environ, "PYTHONPATH": str(SOURCE)})
        ready = json.loads((directory / f"bolide-up-{up.address[1]}" / "ready").read_text("utf-8"))
        yield str(ready["grpc"])


def written(language: str, endpoint: str, path: Path) -> Path:
    """The program of the page, in a file."""
    found = re.search(rf"## First programs.*?```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    assert found[1].count("127.0.0.1:8081") == 1
    path.write_text(found[1].replace("127.0.0.1:8081", endpoint))
    return path


def says(directory: Path, text: str, *command: str) -> None:
    with running("first", command, directory, {"HOME": str(directory)}) as program:
        program.await_output(text, LIMIT_S)
        program.wait(LIMIT_S)


@pytest.mark.short
@pytest.mark.feature("X08")
def test_python(endpoint: str, tmp_path: Path) -> None:
    program = written("python", endpoint, tmp_path / "first.py")
    says(tmp_path, "b'hello from Python'", grpc_python()[0], str(program))


def test_java(endpoint: str, tmp_path: Path) -> None:
    program = written("java", endpoint, tmp_path / "First.java")
    libraries = os.pathsep.join(str(jar) for jar in sorted(jars(f"client-java-{GRPC_JAVA_RELEASE}").glob("*.jar")))
    says(tmp_path, "hello from Java", "java", "-cp", libraries, str(program))


@pytest.mark.skipif(shutil.which("go") is None, reason="there is no Go here: install golang")
def test_go(endpoint: str, tmp_path: Path) -> None:
    module = tmp_path / "module"
    shutil.copytree(HERE / "grpc" / "go", module)
    written("go", endpoint, module / "main.go")
    build = ["go", "build", "-buildvcs=false", "-o", str(tmp_path / "first"), "."]
    subprocess.run(build, cwd=module, check=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    says(tmp_path, "hello from Go", str(tmp_path / "first"))


@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node here: install nodejs and npm")
def test_node(endpoint: str, tmp_path: Path) -> None:
    program = written("js", endpoint, tmp_path / "first.js")
    modules = Path(grpc_node()[1]).parent / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    says(tmp_path, "hello from Node", "node", str(program))
