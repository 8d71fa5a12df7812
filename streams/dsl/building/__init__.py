"""The operators of the fluent classes, which add nodes to the logical graph."""
