"""Fetching the broker's jars. What the network would give is covered by every broker test."""

from __future__ import annotations

from pathlib import Path

import pytest

from recon.errors import ConfigError
from recon.local import jars
from recon.local.spark import packages
from recon.spark.session import delta_package
from tests.support.messages import raises


def test_cached_jars_need_neither_java_nor_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECON_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    cached = tmp_path / f"kafka_2.13-{jars.KAFKA_VERSION}"
    cached.mkdir()
    assert jars.kafka_jars() == cached


def test_a_fetch_that_fails_leaves_no_folder_and_says_so_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECON_CACHE", str(tmp_path))
    # A version nobody published: Ivy itself answers, whether there is a network or not.
    monkeypatch.setattr(jars, "KAFKA_VERSION", "0.0.0-none")
    with raises(ConfigError) as failed:
        jars.kafka_jars()
    assert "\n" not in str(failed.value)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_the_packages_follow_the_installed_versions() -> None:
    from importlib.metadata import version

    import delta
    import pyspark

    assert delta is not None
    first, second = packages()
    assert first.startswith("io.delta:delta-spark") and first.endswith(f"_2.13:{version('delta-spark')}")
    assert second == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


@pytest.mark.parametrize(
    ("spark", "delta", "coordinate"),
    [
        ("4.0.0", "4.0.1", "io.delta:delta-spark_2.13:4.0.1"),
        ("4.0.2", "4.1.0", "io.delta:delta-spark_4.0_2.13:4.1.0"),
        ("4.1.1", "4.1.0", "io.delta:delta-spark_4.1_2.13:4.1.0"),
    ],
)
def test_deltas_artefact_names_the_spark_line_since_4_1(spark: str, delta: str, coordinate: str) -> None:
    assert delta_package(spark, delta) == coordinate
