"""An instance of an application: its threads, its state and its supervision."""
