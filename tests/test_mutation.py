"""The planted faults of ``python -m tests.mutation`` still are where its table says."""

import ast

import pytest

from tests.mutation import FAULTS, ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.file}: {fault.instead}")
def test_planted_fault_is_one_place_and_compiles(fault):
    text = (ROOT / "streams" / fault.file).read_text()

    assert text.count(fault.text) == 1
    assert (ROOT / fault.tests).is_dir()
    ast.parse(text.replace(fault.text, fault.instead))


def test_there_are_sixty_different_faults():
    assert len(set(FAULTS)) == 60
