"""The notebook of the docs runs in a kernel, and its objects are shown as pictures and tables."""

import os
import xml.dom.minidom
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "docs" / "notebooks" / "tour.ipynb"


@pytest.mark.slow
def test_the_tour(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(TOUR, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, startup_timeout=600, kernel_name="python3").execute()

    shown = [output.data for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    picture, topic, live, store, result, contents, comparison = shown
    assert xml.dom.minidom.parseString(picture["image/svg+xml"]).documentElement.tagName == "svg"
    assert "paid" in picture["image/svg+xml"]
    assert "<td>key</td><td>string</td>" in topic["text/html"]
    # The table of an earlier cell has what came in later.
    assert "<td>ann</td><td>700</td><td>2026-01-05T10:00:00Z</td>" in live["text/html"]
    assert live["text/html"] == store["text/html"]
    assert "<td>revenue</td><td>4</td>" in result["text/html"]
    assert "<td>revenue-by-customer</td><td>3</td>" in result["text/html"]
    assert "<td>cy</td><td>250</td>" in contents["text/html"]
    assert "<td>revenue</td><td>bob</td><td>only in OLD</td><td>20</td><td>none</td>" in comparison["text/html"]
