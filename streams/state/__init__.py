"""State stores: specs, engines, write buffer, typed views; knowing nothing of topics."""
