"""Completion by Tab: the scripts are those of their shells, and bash completes what a script declares."""

import os
import shlex
import shutil
import subprocess

import pytest

from tests import programs

SHELLS = ("bash", "zsh", "fish")
#: Completes a line as bash does at Tab, and prints what it offers.
DRIVE = """
source <(streams completion bash)
COMP_LINE={line}; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9
_python_argcomplete streams 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def completed(streams, tmp_path):
    """Complete a line in bash; return what it offers."""
    # The programs of tests get no other open files than the standard streams.
    environment = programs.shell_environment(tmp_path / "commands") | {"ARGCOMPLETE_USE_TEMPFILES": "1"}

    def completed(line: str) -> list[str]:
        done = subprocess.run(
            ["bash", "--norc", "-c", DRIVE.format(line=shlex.quote(line))],
            cwd=streams.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    return completed


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_accepts_its_script(streams, shell):
    script = streams("completion", shell)
    assert script.status == 0

    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")
    subprocess.run([shell, "-n"], input=script.out, text=True, check=True)


def test_commands_options_and_choices(completed):
    assert completed("streams de") == ["dev", "describe"]
    assert "--final-flush" in completed("streams run counts.py --f")
    assert completed("streams describe counts.py --format m") == ["mermaid"]


def test_topics_of_the_script(completed, streams):
    streams.write("words.jsonl", "")

    assert completed("streams run counts.py --input ") == ["words="]
    assert completed("streams run counts.py --output ") == ["counts="]
    assert completed("streams run counts.py --input words=wo") == ["words.jsonl"]
    assert completed("streams consume counts.py:") == ["counts", "words"]


def test_scripts_settings_and_nodes(completed):
    assert completed("streams run ha") == ["halves.py"]
    assert completed("streams run halves.py --set commit_int") == ["commit_interval_ms="]
    assert "word-counts" in " ".join(completed("streams why counts.py --key a --node "))


def test_a_script_with_a_mistake_has_nothing_to_offer(completed, streams):
    streams.write("broken.py", "1 / 0")

    assert completed("streams run broken.py --input ") == []


def test_the_extra_is_named_where_it_is_missing(streams):
    streams.write("argcomplete.py", "raise ImportError('no argcomplete here')")

    result = streams("completion", "bash", PYTHONPATH=str(streams.folder))

    assert result.status == 2
    assert "[completion]'" in result.err
    assert os.linesep not in result.err.strip()
