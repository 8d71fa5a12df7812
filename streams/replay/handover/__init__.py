"""The steps that continue a replay as a live application.

These are: saving a snapshot, checking the topics, going live, and publishing the outputs.
"""
