"""Types and functions that every package uses: a collection of modules, imported one by one."""
