"""Jars that tests need besides recon's own, as Maven coordinates for `spark_session(extra_packages=…)`."""

from importlib.metadata import version

from recon.base.errors import ConfigError
from recon.spark.packages import iceberg_package

POSTGRES_JDBC = "org.postgresql:postgresql:42.7.7"
MARIADB_JDBC = "org.mariadb.jdbc:mariadb-java-client:3.5.3"
# SQL Server's dialect is tried on H2's imitation of it.
H2 = "com.h2database:h2:2.3.232"
JDBC_DRIVERS = (POSTGRES_JDBC, MARIADB_JDBC, H2)


def _iceberg() -> tuple[str, ...]:
    try:
        return (iceberg_package(version("pyspark")),)
    except ConfigError:
        return ()


ICEBERG = _iceberg()  # empty where Iceberg has no build for the installed pyspark
