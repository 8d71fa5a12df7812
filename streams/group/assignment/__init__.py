"""Assignors of consumers, subscriptions and assignments as bytes."""
