"""A task: its inputs, its order, its calls, its outputs and its checkpoints."""
