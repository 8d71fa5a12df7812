"""The suites, one a module, in the order of the page."""

import importlib
import pkgutil

from tests.outside.suite import Suite


def suites() -> dict[str, Suite]:
    """Return all suites by name."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return {module.SUITE.name: module.SUITE for module in modules}
