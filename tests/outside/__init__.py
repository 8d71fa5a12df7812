"""Suites of tests that nobody of this project wrote: ``make outside-test``."""
