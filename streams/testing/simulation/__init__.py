"""A deterministic simulation of an application among faults; the front door is ``simulate``."""

from streams.testing.simulation.report import SimulationError, SimulationReport
from streams.testing.simulation.simulate import simulate

__all__ = ["SimulationError", "SimulationReport", "simulate"]
