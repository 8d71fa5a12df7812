"""The steps that continue a replay as a live application.

They are snapshots, checks of the topics, going live, and publishing the outputs.
"""
