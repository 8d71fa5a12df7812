"""Membership of groups, sans-IO: both halves of the protocol, assignors and their bytes."""
