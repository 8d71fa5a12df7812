"""Every connector is made by the name of its kind, from settings as TOML has them."""

import tomllib

import pytest

from streams.connect.kinds import KINDS, kind_named, make
from streams.core.errors import ConfigError

SETTINGS = {
    "postgres": 'dsn = "dbname=shop"\ntable = "sales.orders"\nkey = ["id"]\ncreate = true',
    "sql": 'target = "sqlite:///orders.db"\ntable = "orders"\nmode = "append"',
    "parquet": 'folder = "orders"\npartition_by = ["day", "value.country"]\ncompression = "zstd"',
    "delta": 'table = "s3://shop/orders"\npartition_by = "day"',
    "iceberg": 'table = "shop.web.orders"\npartition_by = ["day"]',
    "http": 'url = "http://host/orders"\nheaders = {Authorization = "x"}\nencode = "orders.py:lines"',
}
SOURCES = {
    "postgres": 'dsn = "dbname=shop"\ntable = "sales.orders"\nkey = ["id"]\nsnapshot = "never"',
    "postgres_polling": 'dsn = "dbname=shop"\ntable = "sales.orders"\nupdated_at = "changed"\ndelay_ms = 0',
    "file": 'path = "app.log"\nfile_format = "jsonl"\nbad_rows = "continue"\ninterval_ms = 100',
    "folder": 'folder = "s3://shop/orders"\npattern = "*.csv"\nsettle_ms = 0\nchanged_files = "continue"',
    "http": 'url = "http://host/orders"\ninterval_ms = 100\nkey = "id"\nheaders = {Authorization = "x"}',
    "webhook": 'listen = "127.0.0.1:0"\npath = "/orders"\nheaders = ["X-Event"]',
}


@pytest.mark.parametrize("name", [kind.name for kind in KINDS if kind.side == "source"])
def test_a_source_is_made_from_its_table(name):
    source = make(kind_named("source", name), tomllib.loads(SOURCES[name]), len)

    assert type(source).__name__ == kind_named("source", name).factory
    with pytest.raises(ConfigError, match=f"source '{name}' has no setting 'tabel'"):
        make(kind_named("source", name), {"tabel": "x"}, len)


@pytest.mark.parametrize("name", [kind.name for kind in KINDS if kind.side == "sink"])
def test_a_sink_is_made_from_its_table(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = []
    settings = tomllib.loads(SETTINGS[name])
    sink = make(kind_named("sink", name), settings, lambda text: asked.append(text) or len)

    assert type(sink).__name__ == kind_named("sink", name).factory
    assert asked == ([settings["encode"]] if "encode" in settings else [])
    with pytest.raises(ConfigError, match=f"sink '{name}' has no setting 'tabel'"):
        make(kind_named("sink", name), {"tabel": "x"}, len)
    with pytest.raises(ConfigError, match=f"sink '{name}' needs the setting"):
        make(kind_named("sink", name), {}, len)


def test_a_setting_of_another_type_and_an_unknown_kind_are_refused():
    with pytest.raises(ConfigError, match=r"sink 'http', setting 'batch_records': Expected `int`, got `str`"):
        make(kind_named("sink", "http"), {"url": "http://x", "batch_records": "many"}, len)
    with pytest.raises(ConfigError, match=r"sink 'parquet', setting 'compression': Invalid enum value 'brotli'"):
        make(kind_named("sink", "parquet"), {"folder": "x", "compression": "brotli"}, len)
    with pytest.raises(ConfigError, match=r"there is no sink of kind 'detla': did you mean 'delta'\?"):
        kind_named("sink", "detla")
