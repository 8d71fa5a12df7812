"""Settings: their declaration, their sources, and the settings of applications and clients."""
