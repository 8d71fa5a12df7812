"""Exporters of metrics, traces and lineage: Prometheus, OpenTelemetry, OpenLineage. Each names the extra it needs."""
