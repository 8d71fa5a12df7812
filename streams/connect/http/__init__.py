"""Sources and sinks over HTTP, and webhooks."""
