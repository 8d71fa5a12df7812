"""Event time in step between tasks: what threads tell each other of their progress, and whom they wait for."""
