"""The processor graph, its sub-topologies and partition groups, and its compilation."""
