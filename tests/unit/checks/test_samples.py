"""What samples may show: the policies, the columns never shown, inheritance and the key of hashes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from recon.base.errors import ConfigError
from recon.checks.binding import bind
from recon.checks.samples import Samples, strictest, without_values
from recon.project import CheckConfig, load
from recon.write.ledger import open_ledger
from tests.support.messages import raises

ROW = {
    "_source_topic": "orders",
    "_source_offset": 7,
    "order_id": 12,
    "n_records": 2,
    "email": "ada@x.org",
    "note": None,
}
KEYS = {"_source_topic": "orders", "_source_offset": 7, "order_id": 12, "n_records": 2}


def shown(policy: str, *never: str, row=ROW, keys=("order_id",), columns=(), identifying=()):
    rules = Samples(keys=keys, columns=columns, hash_key=lambda: b"k" * 32)
    rows = rules.shown([row], CheckConfig(samples=policy, never_show=never), identifying)
    return rows[0] if rows else None


def test_the_policies() -> None:
    assert shown("none") is None
    assert shown("keys") == KEYS
    assert shown("full") == ROW
    hashed = shown("hash")
    assert {name: hashed[name] for name in ("_source_topic", "_source_offset", "n_records", "note")} == {
        "_source_topic": "orders",
        "_source_offset": 7,
        "n_records": 2,
        "note": None,
    }
    assert hashed["email"].startswith("hash:") and hashed["order_id"].startswith("hash:")
    assert CheckConfig().samples == "keys", "nothing is shown that nobody asked for"


def test_a_row_of_which_nothing_is_left_is_left_out() -> None:
    assert shown("keys", row={"email": "ada@x.org"}) is None


def test_a_column_that_has_the_name_of_a_count_is_no_count() -> None:
    assert "n_records" not in shown("keys", columns={"n_records", "order_id"})


def test_keys_are_those_of_the_sink_and_of_the_check_whatever_their_case() -> None:
    assert shown("keys", row={"Order_ID": 1, "email": "a", "city": "b"}, identifying=["EMAIL"]) == {
        "Order_ID": 1,
        "email": "a",
    }


@pytest.mark.parametrize("policy", ["keys", "hash", "full"])
def test_columns_never_shown(policy: str) -> None:
    row = {
        "Email": "ada@x.org",
        "email in ref('crm')": "ada@y.org",
        "o.email": "ada@z.org",
        "who": {"email": "ada@w.org", "id": 1},
        "all": [{"email": "ada@v.org"}],
        "`email`": "ada@u.org",
        "address.street": "Pine 7",
    }
    found = shown(policy, "email", "Address", row=row, keys=("email", "o.email"))
    assert "ada" not in str(found) and "Pine" not in str(found)
    assert shown("full", "email", row={"email": None, "emails": 3}) == {"email": None, "emails": 3}


def test_hashes_are_equal_for_equal_values_and_need_the_key() -> None:
    def of(value: object, key: bytes) -> object:
        (row,) = Samples(hash_key=lambda: key).shown([{"a": value}], CheckConfig(samples="hash"))
        return row["a"]

    assert of("7", b"one") == of("7", b"one") != of("7", b"two")
    assert of("7", b"one") != of(7, b"one")


def test_the_strictest_of_two() -> None:
    both = strictest([CheckConfig(samples="full"), CheckConfig(samples="hash")], ["a"])
    assert (both.samples, both.never_show) == ("hash", ("a",))


def test_errors_of_spark_quote_no_value() -> None:
    cast = """[CAST_INVALID_INPUT] The value 'O'Hara of the 3rd' of the type "STRING" cannot be cast to "BIGINT\""""
    number = '[CAST_OVERFLOW] The value 4711 of the type "INT" cannot be cast to "TINYINT" due to an overflow.'
    time = "[CANNOT_PARSE_TIMESTAMP] Text 'ada@x.org' could not be parsed at index 0."
    record = '[MALFORMED_RECORD_IN_PARSING] Malformed records are detected in record parsing: {"mail": "ada@x.org"}'
    assert without_values(cast + " Correct the value as per the syntax", CheckConfig()).endswith("as per the syntax")
    for text, value in ((cast, "Hara"), (number, "4711"), (time, "ada"), (record, "ada")):
        assert value not in without_values(text, CheckConfig()) and text[:20] in without_values(text, CheckConfig())
        assert without_values(text, CheckConfig(samples="full")) == text


# --- recon.yml --------------------------------------------------------------------------------------------

YML = """\
name: shop
ledger: {ledger}
defaults: {{samples: hash, never_show: [email]}}
{more}
pipelines:
  - name: orders
    checkpoint: cp
    defaults: {{never_show: name}}
    sinks:
      - name: lake
        target: lake
        defaults: {{samples: none}}
        data_tests:
          - not_null: {{column_name: a}}
          - not_null: {{column_name: b, samples: full, never_show: [ssn]}}
      - name: other
        target: other
        data_tests: [{{not_null: {{column_name: a}}}}]
"""


def project(folder: Path, ledger: str = "_recon", more: str = ""):
    (folder / "recon.yml").write_text(YML.format(ledger=ledger, more=more))
    return load(folder)


def test_the_nearest_policy_holds_and_columns_never_shown_are_united(tmp_path: Path) -> None:
    configs = {b.name: (b.config.samples, set(b.config.never_show)) for b in bind(project(tmp_path))}
    assert configs["not_null_lake_a"] == ("none", {"email", "name"})
    assert configs["not_null_lake_b"] == ("full", {"email", "name", "ssn"})
    assert configs["not_null_other_a"] == ("hash", {"email", "name"})


def test_a_policy_that_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "recon.yml").write_text(YML.format(ledger="_recon", more="").replace("samples: hash", "samples: some"))
    with raises(ConfigError):
        load(tmp_path)


def test_the_key_is_kept_beside_the_ledger_for_its_owner_alone(tmp_path: Path) -> None:
    key = project(tmp_path).sample_hash_key()
    file = tmp_path / "_recon" / "samples.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and len(key) == 64
    assert project(tmp_path).sample_hash_key() == key and not open_ledger(project(tmp_path)).exists()


def test_the_key_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECON_HASH_KEY", "0123456789abcdef-secret")
    ours = project(tmp_path, more="hash_key: \"{{ env_var('RECON_HASH_KEY') }}\"")
    assert ours.sample_hash_key() == b"0123456789abcdef-secret" and not (tmp_path / "_recon").exists()
    assert ours.mask("key 0123456789abcdef-secret") == "key ***"


def test_a_key_written_into_the_file_is_refused(tmp_path: Path) -> None:
    with raises(ConfigError):
        project(tmp_path, more="hash_key: 0123456789abcdef-secret")


def test_hashes_beside_a_ledger_in_an_object_store_need_a_key(tmp_path: Path) -> None:
    with raises(ConfigError):
        project(tmp_path, ledger="s3://bucket/_recon")
