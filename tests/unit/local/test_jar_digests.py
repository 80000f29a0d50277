"""Jars that were fetched are compared with recon's list of digests before anything loads them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recon.base.errors import ConfigError
from recon.local import jars as broker_jars
from recon.spark import jars, jvm
from recon.spark.jars import BROKER, SPARK, TESTS, Jar
from recon.spark.packages import default_packages
from scripts import jar_digests, warm
from tests.support.drivers import JDBC_DRIVERS

LIST = tuple(
    Jar(used_by, "org.x", artifact, "1.0", hashlib.sha256(artifact.encode()).hexdigest())
    for used_by, artifact in ((BROKER, "one"), (BROKER, "two"), (SPARK, "three_2.13"), (TESTS, "four"))
)


LISTED = jars.listed_jars()


@pytest.fixture(autouse=True)
def _short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "listed_jars", lambda: LIST)
    monkeypatch.setattr(jars, "_SETTLE_S", 0)


def write_jars(folder: Path, used_by: tuple[str, ...], **changed: str) -> list[Path]:
    """The jars of LIST as files; `changed` are contents of some, by artifact."""
    folder.mkdir(parents=True, exist_ok=True)
    for jar in LIST:
        if jar.used_by in used_by:
            (folder / jar.file_name).write_text(changed.get(jar.artifact, jar.artifact))
    return list(folder.iterdir())


def fake_ivy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fetch: Callable[[Path], object]) -> None:
    monkeypatch.setenv("RECON_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(broker_jars, "retrieve", fetch)


def test_the_broker_gets_a_folder_of_published_jars_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ivy(monkeypatch, tmp_path, lambda into: write_jars(into, (BROKER,), two="other bytes"))
    with pytest.raises(ConfigError, match=r"two-1\.0\.jar is not the jar that was published") as refused:
        broker_jars.kafka_jars()
    assert str(Path.home() / ".ivy2" / "cache" / "org.x" / "two") in str(refused.value)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]
    fake_ivy(monkeypatch, tmp_path, lambda into: write_jars(into, (BROKER,)))
    assert {path.name for path in broker_jars.kafka_jars().iterdir()} == {"one-1.0.jar", "two-1.0.jar"}


def test_a_jar_too_many_or_too_few_is_refused(tmp_path: Path) -> None:
    files = write_jars(tmp_path, (BROKER,))
    (tmp_path / "new-2.0.jar").touch()
    with pytest.raises(ConfigError, match=r"1 not on the list \(new-2.0.jar\) and 1 missing \(one-1.0.jar\)"):
        jars.refuse_others([tmp_path / "two-1.0.jar", tmp_path / "new-2.0.jar"], [BROKER])
    jars.refuse_others(files, [BROKER])


def test_a_jar_that_another_process_is_still_writing_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_jars(tmp_path, (BROKER,), two="tw")
    parts = iter(["two, half of it", "two"])
    monkeypatch.setattr(jars.time, "sleep", lambda _: (tmp_path / "two-1.0.jar").write_text(next(parts)))
    jars.refuse_changed(files, [BROKER])
    assert next(parts, None) is None


def gateway(files: list[Path], ended: list[str]) -> Any:
    """Stands for the JVM that spark-submit started, with the jars that it resolved."""
    properties: Mapping[str, str] = {
        "spark.jars": ",".join([*(path.as_uri() for path in files), "s3://bucket/own.jar"])
    }
    return SimpleNamespace(
        jvm=SimpleNamespace(
            java=SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(getProperty=properties.get)))
        ),
        shutdown=lambda: ended.append("gateway"),
        proc=SimpleNamespace(stdin=SimpleNamespace(close=lambda: ended.append("jvm"))),
    )


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)


@pytest.mark.usefixtures("no_jvm")
def test_spark_gets_no_session_with_a_changed_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    files = write_jars(tmp_path / "a b" / "jars", (SPARK, TESTS), four="other bytes")
    ended: list[str] = []
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda *_: gateway(files, ended))
    with pytest.raises(ConfigError, match=r"org.x_four-1\.0\.jar is not the jar that was published") as refused:
        jvm.start_jvm({"spark.master": "local[1]"})
    assert str(tmp_path / "a b" / "cache" / "org.x" / "four") in str(refused.value)
    # The next session starts, and refuses, a JVM of its own.
    assert ended == ["gateway", "jvm"] and SparkContext._gateway is None


@pytest.mark.usefixtures("no_jvm")
def test_published_jars_and_those_of_other_versions_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    files = write_jars(tmp_path, (SPARK, TESTS))
    # Another version, and a file of the user's own, which Ivy would have named after its group.
    for name in ("org.x_four-2.0.jar", "four-1.0.jar"):
        (tmp_path / name).write_text("unknown")
        files.append(tmp_path / name)
    started = gateway(files, [])
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda *_: started)
    assert jvm.start_jvm({"spark.master": "local[1]"}, tmp_path / "target" / "spark.log") == sorted(files)
    assert SparkContext._gateway is started
    assert jvm.start_jvm({}) == []


@pytest.mark.usefixtures("no_jvm")
@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        ({"PYSPARK_GATEWAY_PORT": "1"}, {}),
        ({"SPARK_REMOTE": "sc://host"}, {}),
        ({"SPARK_API_MODE": "connect"}, {}),
        ({}, {"spark.remote": "sc://host"}),
        ({"SPARK_API_MODE": "classic"}, {"spark.api.mode": "Connect"}),
    ],
)
def test_a_jvm_that_is_somebody_elses_is_not_started(
    monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], settings: Mapping[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda *_: pytest.fail("a JVM was started"))
    assert jvm.start_jvm({"spark.master": "local[1]", **settings}) == []


@pytest.mark.usefixtures("no_jvm")
def test_a_session_that_is_not_of_spark_connect_by_its_setting_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_jars(tmp_path, (SPARK,))
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda *_: gateway(files, []))
    assert jvm.start_jvm({"spark.api.mode": "classic"}) == files


def test_the_setup_asks_for_the_whole_list(tmp_path: Path) -> None:
    write_jars(tmp_path / "broker", (BROKER,))

    def main() -> None:
        warm.main(lambda: tmp_path / "broker", lambda _: write_jars(tmp_path / "spark", (SPARK, TESTS)))

    main()
    (tmp_path / "broker" / "two-1.0.jar").write_text("other bytes")
    with pytest.raises(SystemExit, match=r"setup: two-1\.0\.jar is not the jar that was published"):
        main()


def test_a_list_is_made_from_ivys_cache(tmp_path: Path) -> None:
    coordinates = ("org.x", "kafka-0-10_2.13"), ("org.postgresql", "postgresql")
    versions = ("4.0", JDBC_DRIVERS[0].split(":")[2])
    files = []
    for (group, artifact), version in zip(coordinates, versions, strict=True):
        cached = tmp_path / "cache" / group / artifact / "bundles" / f"{artifact}-{version}.jar"
        cached.parent.mkdir(parents=True)
        cached.touch()
        files.append(tmp_path / f"{group}_{artifact}-{version}.jar")
        files[-1].write_text(artifact)
    found = [*jar_digests.jars(files, SPARK, tmp_path / "cache")]
    assert [jar.used_by for jar in found] == [SPARK, TESTS]
    text = jar_digests.listing(found, [])
    assert jars.read_list(text) == tuple(found)
    with pytest.raises(Exception, match=r"org\.x:kafka-0-10_2\.13:4\.0 had the digest 00 and was fetched with"):
        jar_digests.listing(found, [found[0]._replace(sha256="00")])


def test_the_list_has_what_recon_and_its_tests_ask_for() -> None:
    assert {":".join(jar[1:4]) for jar in LISTED} >= {
        f"org.apache.kafka:kafka_2.13:{broker_jars.KAFKA_VERSION}",
        *default_packages(kafka=True, iceberg=True),
        *JDBC_DRIVERS,
    }
    assert len({(jar.used_by, jar.file_name) for jar in LISTED}) == len(LISTED)
    assert all(len(bytes.fromhex(jar.sha256)) == 32 and jar.used_by in (BROKER, SPARK, TESTS) for jar in LISTED)
    # The header is the script's.
    assert jar_digests.listing(LISTED, LISTED) == jar_digests.LIST.read_text(encoding="utf-8")
