"""What `make demo` runs, on less input."""

from io import StringIO

from rich.console import Console

from topology_examples import demo


def test_demo_shows_both_jobs(run_module):
    printed = run_module("topology_examples.demo", "--events", 12_000, "--partitions", 2)

    assert "11,760 events, half of them late, in 2 partitions" in printed
    assert "Hot items" in printed
    assert "Closing prices" in printed
    assert "█" in printed


def test_demo_without_a_repository_leaves_its_history_out(tmp_path):
    err, out = Console(file=StringIO()), Console(file=StringIO())

    demo.show_history(err, out, tmp_path / "missing", 1)

    assert "no git history" in err.file.getvalue()
    assert out.file.getvalue() == ""
