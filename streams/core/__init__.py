"""Types and functions that all packages use; import each module separately."""
