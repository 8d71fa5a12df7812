"""The graph as values, its sub-topologies and partition groups, and its compilation."""
