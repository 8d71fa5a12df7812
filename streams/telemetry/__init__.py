"""Exporters of metrics and traces: Prometheus text and OpenTelemetry. Each module names the pip extra that it needs."""
