"""Transcripts of rebalances, for people to read and for machines to replay."""
