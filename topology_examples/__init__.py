"""Examples: numbered scripts that run alone, the Nexmark generator and the demo."""
