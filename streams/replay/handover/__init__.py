"""From a replay to the live application: snapshots, cutover, going live, publishing."""
