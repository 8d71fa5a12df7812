"""What names this package says the place that it was installed from."""

import json
from importlib import metadata

import pytest

from streams.core import installation


@pytest.mark.parametrize(
    ("noted", "command", "dependency"),
    [
        (None, "pip install 'streams[web]'", "streams[web]>=1.2"),
        (
            {"url": "file:///a%20b/streams", "dir_info": {}},
            "pip install '/a b/streams[web]'",
            "streams[web] @ file:///a%20b/streams",
        ),
        (
            {"url": "file:///src", "dir_info": {"editable": True}},
            "pip install --editable '/src[web]'",
            "streams[web] @ file:///src",
        ),
        (
            {"url": "file:///dist/streams-1.2-cp311.whl", "archive_info": {}},
            "pip install '/dist/streams-1.2-cp311.whl[web]'",
            "streams[web] @ file:///dist/streams-1.2-cp311.whl",
        ),
        (
            {"url": "file:///src", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "py"},
            "pip install 'streams[web] @ git+file:///src@abc#subdirectory=py'",
            "streams[web] @ git+file:///src@abc#subdirectory=py",
        ),
    ],
    ids=["index", "folder", "editable", "wheel", "git"],
)
def test_the_place_of_the_installation_is_named(noted, command, dependency, tmp_path, monkeypatch):
    info = tmp_path / "streams-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: streams\nVersion: 1.2\n")
    if noted:
        (info / "direct_url.json").write_text(json.dumps(noted))
    installed = metadata.PathDistribution(info)
    monkeypatch.setattr(metadata.Distribution, "from_name", lambda name: installed)
    for cached in (installation._origin, installation.installed_version):
        monkeypatch.setattr(installation, cached.__name__, cached.__wrapped__)

    assert installation.pip_install("web") == command
    assert installation.requirement("web") == dependency
