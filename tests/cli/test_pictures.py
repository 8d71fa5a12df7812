"""The drawings in the docs are those that the commands on their pages make; ``make pictures`` writes them again."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FILE = re.compile(r'```\w+ title="([^"]+)"\n(.*?)```', re.DOTALL)


@pytest.mark.parametrize(
    ("page", "command", "picture"),
    [
        ("why", "why shop.py {inputs} --key ann", "why-ann"),
        ("why", "why shop.py {inputs} --key cy", "why-cy"),
        ("why", "describe shop.py", "topology-shop"),
        ("diff", "diff shop.py shop_new.py --only-state --application-id shop", "diff-shop"),
    ],
)
def test_drawing_of_a_page_is_the_one_that_its_command_makes(streams, request, page, command, picture):
    for name, text in FILE.findall((DOCS / "guide" / f"{page}.md").read_text(encoding="utf-8")):
        # The other version, as the page of the two makes it.
        new = text.replace("stream(orders)", "stream(orders).filter(lambda customer, cents: cents > 0)")
        streams.write(name.replace("shop.py", "shop_new.py"), new)
        streams.write(name, text)
    inputs = "--input orders=orders.records.jsonl --input payments=payments.records.jsonl"

    drawing = streams(*command.format(inputs=inputs).split(), "--format", "svg").out

    assert drawing.startswith("<svg")
    place = DOCS / "images" / f"{picture}.svg"
    if request.config.option.pictures:
        place.write_text(drawing, encoding="utf-8")
    assert place.read_text(encoding="utf-8") == drawing
    assert f"images/{picture}.svg" in (DOCS / "guide" / f"{page}.md").read_text(encoding="utf-8")
