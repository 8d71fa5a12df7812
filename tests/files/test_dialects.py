"""CSV as other programs write it: options, and refusals that say which of them a file needs."""

from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from streams import ConfigError, Csv, InputError, Topic
from streams.files import Location, local_sources
from tests.files.test_reader import records


@frozen
class Row:
    """A row of the files of these tests."""

    id: int
    name: str
    note: str | None = "-"


ROWS = [Row(1, "Å;"), Row(2, "b\r\n")]


def read(location: str, topic: Topic[Any, Any] | None = None) -> list[Any]:
    topic = topic or Topic("t", value=Row)
    return [
        topic.value_serde.deserialize(value)
        for source in local_sources(location)
        for _, _, value, _ in records(topic, source)  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(
    ("options", "content"),
    [
        ("", 'id,name\n01,Å;\n2,"b\r\n"\n'),
        ("", 'id,name\r1,Å;\r2,"b\r\n"\r'),
        ("?delimiter=;", 'id;name\r\n1;"Å;"\r\n2;"b\r\n"\r\n'),
        ("?delimiter=;&encoding=latin-1", 'id;name\r\n1;"Å;"\r\n2;"b\r\n"\r\n'),
        ("?delimiter=tab&encoding=utf-16", '\ufeffid\tname\n1\tÅ;\n2\t"b\r\n"\n'),
        ("?delimiter=%7C&quote='", "id|name\n1|Å;\n2|'b\r\n'\n"),
        ("?columns=id,name", '1,Å;\n2,"b\r\n"\n'),
        ("", 'sep=;\nid;name\n1;"Å;"\n2;"b\r\n"'),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".dat"])
def test_each_dialect_gives_the_same_rows(tmp_path: Path, options: str, content: str, suffix: str) -> None:
    path = tmp_path / f"f{suffix}"
    path.write_bytes(content.encode("utf-16-le" if "utf-16" in options else Csv.parse(options[1:]).encoding))

    assert read(f"csv:{path}{options}") == ROWS
    assert read(f"csv:file://{path}{options}") == ROWS
    assert read(f"csv:{tmp_path}{options}") == ROWS
    in_code = Location(str(path), Csv.parse(options[1:]))
    assert Location.parse(f"csv:{path}{options}").kind_of(path) == in_code.kind_of(path)


@pytest.mark.parametrize(
    "csv",
    [Csv(), Csv(delimiter="\t", quote=""), Csv(delimiter="&", encoding="cp1252", columns=("a,b", "%", " "), null="")],
)
def test_options_are_read_as_they_are_written(csv: Csv) -> None:
    assert Csv.parse(str(csv)) == csv


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("csv:f.csv?delimeter=;", "no option 'delimeter': did you mean 'delimiter'?"),
        ("csv:f.csv?delimiter=;;", "delimiter has to be one character, not ';;'"),
        ("csv:f.csv?delimiter=\\t", "one character, or 'tab', not"),
        ("csv:f.csv?quote=,", "',' is both delimiter and quote"),
        ("csv:f.csv?encoding=latin1x", "no encoding 'latin1x': did you mean 'latin1'"),
        ("csv:f.csv?encoding=base64", "no encoding 'base64': there are: latin-1"),
        ("csv:f.csv?delimiter=;&delimiter=;", "option 'delimiter' of CSV is given twice"),
        ("csv:f.csv?delimiter", "option 'delimiter' of CSV has no value"),
        ("csv:f.csv?columns=a,a", "columns has 'a' twice"),
        ("jsonl:f.jsonl?delimiter=;", "jsonl has no options"),
        ("cvs:f.csv", "did you mean csv:f.csv?"),
        ("f.csv?delimiter=;", "did you mean csv:f.csv?delimiter=;?"),
    ],
)
def test_options_that_do_not_exist_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Location.parse(text)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"id;name\n1;a\n", "?delimiter=;"),
        (b"id\tname\n1\ta\n", "?delimiter=tab"),
        ("id;name\n1;a\n".encode("utf-16"), "?encoding=utf-16"),
        ("id;name\n1;a\n".encode("utf-16-be"), "?encoding=utf-16-be"),
        ("id,name\n1,Å\n".encode("latin-1"), "?encoding=latin-1"),
        ("id,näme\n1,a\n".encode("latin-1"), "?encoding=latin-1"),
    ],
)
def test_a_file_of_another_dialect_is_refused_with_what_to_type(tmp_path: Path, content: bytes, advice: str) -> None:
    (tmp_path / "f.csv").write_bytes(content)

    for location in (f"{tmp_path}/f.csv", str(tmp_path)):
        with pytest.raises(InputError) as refusal:
            read(location, Topic("t", value=dict))
        assert f'give "csv:{location}{advice}" as the input, or file_format="csv{advice}"' in str(refusal.value)
        if "latin" in advice:
            assert read(f"csv:{location}{advice}", Topic("t", value=dict))


@pytest.mark.parametrize(
    ("options", "content", "message"),
    [
        ("?delimiter=%7C", b"sep=;\nid;name\n", "says sep=;, but the delimiter is '|'"),
        ("?columns=ID,name", b"id,name\n1,a\n", "is a header with these names; leave the option columns out"),
        ("?encoding=latin-1", "\ufeffid,name\n".encode(), "is in UTF-8, not in LATIN-1; give"),
        ("?encoding=utf-16", b"abc", "is not utf-16: "),
    ],
)
def test_options_that_do_not_fit_the_file_are_refused(
    tmp_path: Path, options: str, content: bytes, message: str
) -> None:
    (tmp_path / "f.csv").write_bytes(content)
    with pytest.raises(InputError) as refusal:
        read(f"csv:{tmp_path}/f.csv{options}")
    assert message in str(refusal.value)


@frozen
class Nulls:
    """Fields of each kind, as to cells without text."""

    text: str
    maybe_text: str | None
    number: int | None
    counted: int = 7
    title: str = "x"
    rank: int | None = 5


@pytest.mark.parametrize(
    ("options", "cell", "expected"),
    [
        ("", "", Nulls("", None, None, 7, "", None)),
        ("?null=NA", "", Nulls("", "", None, 7, "", None)),
        ("?null=NA", "NA", "Expected `str`, got `null` - at `$.text`"),
        ("?null=", "", "Expected `str`, got `null` - at `$.text`"),
    ],
)
def test_empty_and_null_cells_are_what_the_type_says(tmp_path: Path, options: str, cell: str, expected: Any) -> None:
    (tmp_path / "f.csv").write_text(f"text,maybe_text,number,counted,title,rank\n{','.join([cell] * 6)}\n")
    topic = Topic("t", value=Nulls)

    if isinstance(expected, Nulls):
        assert read(f"csv:{tmp_path}/f.csv{options}", topic) == [expected]
    else:
        with pytest.raises(InputError, match=expected.replace("$", r"\$").replace("E", "[eE]")):
            read(f"csv:{tmp_path}/f.csv{options}", topic)
    (tmp_path / "g.csv").write_text(f"a,b\n{cell},1\n")
    null = None if options and cell == options[6:] else cell
    assert read(f"csv:{tmp_path}/g.csv{options}", Topic("t", value=dict)) == [{"a": null, "b": "1"}]


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(f"id,name\n1,{'x' * 1_000_000}\n")

    assert len(read(f"{tmp_path}/f.csv")[0].name) == 1_000_000


@pytest.mark.parametrize("name", ["f.csv", "f.jsonl", "f.log"])
def test_files_with_marks_that_were_joined_are_one(tmp_path: Path, name: str) -> None:
    rows = {"f.csv": "\ufeffid,name\n{}\n", "f.jsonl": "\ufeff{}\n", "f.log": "\ufeff{}\n"}[name]
    lines = ["1,a", "2,b"] if name == "f.csv" else ['{"id":"1","name":"a"}', '{"id":"2","name":"b"}']
    (tmp_path / name).write_text("".join(rows.replace("{}", line) for line in lines))

    expected = lines if name == "f.log" else [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}]
    assert read(f"{tmp_path}/{name}", Topic("t", value=str if name == "f.log" else dict)) == expected


def test_joined_files_with_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("\ufeffid,name\n1,a\n\ufeffname,id\nb,2\n")

    with pytest.raises(InputError, match=r"f.csv:3: has the columns of line 1 in another order"):
        read(f"{tmp_path}/f.csv", Topic("t", value=dict))


def test_the_scheme_of_a_uri_is_no_misspelt_format() -> None:
    assert Location.parse("gcs://bucket/f.csv") == Location("gcs://bucket/f.csv")
