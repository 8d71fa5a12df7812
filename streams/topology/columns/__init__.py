"""Columns: what users' functions do, as expressions over fields, and which nodes of a topology are computed so."""
