"""The coordinator's state of groups, its log, settings, timers and effects."""
