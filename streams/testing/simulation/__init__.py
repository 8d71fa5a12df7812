"""Deterministic simulation of an application with faults; the entry point is ``simulate``."""

from streams.testing.simulation.report import SimulationError, SimulationReport
from streams.testing.simulation.simulate import simulate

__all__ = ["SimulationError", "SimulationReport", "simulate"]
