"""``streams new``: a project that works as it is made."""

import subprocess
import sys

import pytest


@pytest.fixture
def shop(streams):
    """The folder of a project as made."""
    made = streams("new", "services/web-shop")
    assert made.status == 0, made.err
    return streams.folder / "services" / "web-shop"


@pytest.mark.slow
def test_the_project_passes_its_tests_and_its_type_check(shop):
    for tool in (["pytest", "-q", "-p", "no:cacheprovider", "-p", "streams_pytest"], ["mypy", "--no-incremental"]):
        done = subprocess.run([sys.executable, "-m", *tool], cwd=shop, capture_output=True, text=True, check=False)

        assert done.returncode == 0, done.stdout + done.stderr


def test_the_project_runs_on_its_sample(streams, shop):
    ran = streams("run", f"{shop}/web_shop.py", "--input", f"orders={shop}/orders.jsonl", "--output", "revenue=-")

    assert ran.values()[-1] == {"orders": 2, "cents": 0}


def test_the_files_of_a_project(shop):
    made = {str(path.relative_to(shop)) for path in shop.rglob("*") if path.is_file()}

    assert made == {
        ".github/workflows/test.yml",
        ".gitignore",
        "README.md",
        "orders.jsonl",
        "pyproject.toml",
        "tests/test_web_shop.py",
        "web_shop.py",
    }
    assert not [path for path in made if "$" in (shop / path).read_text()]


def test_an_empty_folder_is_filled(streams):
    (streams.folder / "shop").mkdir()

    assert streams("new", "shop").status == 0
    assert (streams.folder / "shop" / "shop.py").exists()


def test_what_is_there_is_left_alone(streams, refused):
    (streams.folder / "shop").mkdir()
    streams.write("shop/mine.txt", "mine")
    streams.write("file", "mine")

    assert "the folder is not empty; choose another name" in refused("new", "shop")
    assert "is a file" in refused("new", "file")
    assert "cannot be made" in refused("new", "file/shop")
    assert [path.name for path in (streams.folder / "shop").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", ["Shop", "2shop", "web--shop", "shop-", "a b", ".", "..", "é", "", "x" * 65])
def test_a_name_that_is_none(refused, name):
    assert "is no name of a project" in refused("new", name)


@pytest.mark.parametrize("name", ["class", "json", "streams", "tests"])
def test_a_name_that_would_hide_a_module(refused, name):
    assert "would hide another one" in refused("new", name)
