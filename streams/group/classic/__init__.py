"""The coordinator: classic groups, and administration of all groups."""
