"""Which Java and which settings Spark is started with; no Spark is started here."""

import subprocess
import sys
from pathlib import Path

import pytest

from bolide.errors import ConfigError
from bolide.spark import java
from bolide.spark.session import demand_spark, settings_for


def a_java(home: Path, version: str, modules: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_bytes(b"\x7fELF")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_a_java_with_the_module_is_taken_as_it_is(tmp_path):
    home = a_java(tmp_path / "jdk", "21.0.2", "java.base jdk.incubator.vector")
    assert java.java_home({"JAVA_HOME": str(home), "PATH": ""}) == home
    assert java.java_home({"PATH": str(home / "bin")}) == home


@pytest.mark.parametrize(
    ("version", "modules"), [("1.8.0_392", "java.base jdk.incubator.vector"), ("21.0.2", "java.base"), ("", "")]
)
def test_where_no_java_will_do_the_one_of_the_wheel_runs_without_the_module_it_lacks(tmp_path, version, modules):
    home = a_java(tmp_path / "old", version, modules)
    environment = {"JAVA_HOME": str(home), "PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = java.java_home(environment)
    assert found.is_relative_to(tmp_path / "cache")
    asked = [found / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    assert 'version "25' in subprocess.run(asked, capture_output=True, text=True, check=True).stderr
    assert java.java_home({**environment, "JAVA_HOME": str(found)}) == found


def test_without_any_java_the_error_says_what_was_seen_and_what_helps(tmp_path, monkeypatch):
    home = a_java(tmp_path / "old", "11.0.1", "java.base")
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"is Java 11.*pip install 'bolide\[spark\]'"):
        java.java_home({"JAVA_HOME": str(home), "PATH": ""})


def test_the_spark_home_has_no_zip_and_a_user_keeps_his_own(tmp_path):
    home = java.spark_home({"XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    assert (home / "bin" / "spark-submit").exists()
    assert (home / "jars").is_dir()
    assert not (home / "python").exists()
    assert java.spark_home({"SPARK_HOME": "/opt/spark"}) is None


def test_without_the_extra_the_command_that_helps_is_named(monkeypatch):
    monkeypatch.setattr(sys.modules["bolide.spark.session"], "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pyspark and pyarrow and pandas.*pip install 'bolide\[spark\]'"):
        demand_spark()


def test_a_session_elsewhere_is_told_only_what_can_be_told_to_it():
    assert all(name.startswith("spark.sql.") for name in settings_for("sc://there:15002"))
    assert settings_for("local[2]")["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in settings_for("spark://there:7077")
