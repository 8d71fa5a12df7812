"""The coordinator side of groups with epochs: one machine, and the kinds consumer and streams."""
