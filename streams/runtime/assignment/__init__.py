"""Assignment of tasks to the members of a group."""
