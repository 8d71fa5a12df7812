"""The member side of groups: classic and with epochs, and recipes for work of any kind."""
