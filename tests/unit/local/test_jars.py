"""Fetching the broker's jars. What the network would give is covered by every broker test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recon.base.errors import ConfigError
from recon.local import jars
from recon.local.spark import packages
from recon.spark.packages import delta_package, scala
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
    assert first.startswith("io.delta:delta-spark") and first.endswith(
        f"_{scala(pyspark.__version__)}:{version('delta-spark')}"
    )
    assert second == f"org.apache.spark:spark-sql-kafka-0-10_{scala(pyspark.__version__)}:{pyspark.__version__}"


@pytest.mark.parametrize(
    ("spark", "delta", "coordinate"),
    [
        ("3.5.7", "3.3.3", "io.delta:delta-spark_2.12:3.3.3"),
        ("4.0.0", "4.0.1", "io.delta:delta-spark_2.13:4.0.1"),
        ("4.0.2", "4.1.0", "io.delta:delta-spark_4.0_2.13:4.1.0"),
        ("4.1.1", "4.1.0", "io.delta:delta-spark_4.1_2.13:4.1.0"),
        ("4.2.0", "4.4.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
        # Newer than this list: its name is made as before.
        ("5.0.0", "5.1.0", "io.delta:delta-spark_5.0_2.13:5.1.0"),
    ],
)
def test_deltas_artefact_names_the_spark_line_since_4_1(spark: str, delta: str, coordinate: str) -> None:
    assert delta_package(spark, delta) == coordinate


@pytest.mark.parametrize(
    ("spark", "delta", "what"),
    [
        ("4.2.0", "4.1.0", "only for Spark 4.0 or 4.1; install delta-spark 4.4 beside pyspark 4.2.0"),
        ("3.5.7", "4.0.1", "only for Spark 4.0; install delta-spark 3.3 beside pyspark 3.5.7"),
        ("4.1.1", "4.0.1", "only for Spark 4.0; install delta-spark 4.1, 4.2, 4.3 or 4.4 beside pyspark 4.1.1"),
        ("4.3.0", "4.4.0", "only for Spark 4.0, 4.1 or 4.2; install another pyspark beside it"),
    ],
)
def test_a_pair_without_a_jar_is_refused_before_anything_is_fetched(spark: str, delta: str, what: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"delta-spark {delta} has no build for Spark {spark}, {what}")):
        delta_package(spark, delta)
