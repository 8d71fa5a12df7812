"""Types and functions that all packages use. Import the modules individually."""
