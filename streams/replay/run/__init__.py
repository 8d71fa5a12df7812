"""Running a replay: the session plans the calls, tasks process them, and the result is read."""
