"""Exporters of metrics and traces: Prometheus text and OpenTelemetry. Each needs the extra that its module names."""
