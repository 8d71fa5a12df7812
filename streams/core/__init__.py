"""Vocabulary of the whole project; imports nothing of ours."""
