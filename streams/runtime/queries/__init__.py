"""Interactive queries over all instances."""
