"""Tasks and what drives them live: queues, commit, restore, assignment, threads, instances."""
