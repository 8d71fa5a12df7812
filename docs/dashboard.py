"""Writes the Grafana dashboard: ``python docs/dashboard.py``. Its queries use the names of ``telemetry.prometheus``."""

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "grafana.json"
_THREAD, _TASK = "kafka_streams_stream_thread_metrics", "kafka_streams_stream_task_metrics"
_NODE, _STATE = "kafka_streams_stream_processor_node_metrics", "kafka_streams_stream_state_metrics"
_FETCH, _PRODUCER = "kafka_consumer_consumer_fetch_manager_metrics", "kafka_producer_producer_metrics"
_CACHE = "kafka_streams_stream_record_cache_metrics"
_TOPIC = "kafka_streams_stream_topic_metrics"

#: Rows of panels: title, unit, and (query, legend) pairs.
ROWS: dict[str, list[tuple[str, str, list[tuple[str, str]]]]] = {
    "Health": [
        ("Threads alive", "short", [("kafka_streams_stream_metrics_alive_stream_threads", "{{client_id}}")]),
        ("Threads failed", "short", [("kafka_streams_stream_metrics_failed_stream_threads", "{{client_id}}")]),
        ("State (2 = running)", "short", [("kafka_streams_stream_metrics_client_state", "{{client_id}}")]),
        ("Time since the last poll", "s", [(f"{_THREAD}_last_poll_seconds_ago", "{{thread_id}}")]),
        ("No broker since", "ms", [(f"{_THREAD}_broker_away_ms", "{{thread_id}}")]),
        ("Partitions that brokers cannot write", "short", [(f"{_THREAD}_unwritable_partitions", "{{thread_id}}")]),
    ],
    "Work": [
        ("Records processed", "ops", [(f"sum by (thread_id) ({_THREAD}_process_rate)", "{{thread_id}}")]),
        (
            "Time of a record",
            "ms",
            [
                (f"{_THREAD}_process_latency_avg", "{{thread_id}} avg"),
                (f"{_THREAD}_process_latency_p99", "{{thread_id}} p99"),
            ],
        ),
        (
            "What threads do",
            "percentunit",
            [(f"avg({_THREAD}_{what}_ratio)", what) for what in ("process", "punctuate", "commit", "poll")],
        ),
        ("Time of a commit", "ms", [(f"{_THREAD}_commit_latency_max", "{{thread_id}} max")]),
    ],
    "Lag and event time": [
        ("Records to process", "short", [(f"sum by (topic) ({_TASK}_input_records_lag)", "{{topic}}")]),
        ("Lag in event time", "ms", [(f"max by (topic) ({_TASK}_input_event_time_lag_ms)", "{{topic}}")]),
        ("Age of stream time", "ms", [(f"{_TASK}_stream_time_age_ms", "{{task_id}}")]),
        (
            "Waiting for a partition",
            "ms",
            [(f"{_TASK}_input_waited_for_ms > 0", "{{task_id}} for {{topic}}-{{partition}}")],
        ),
        ("End to end", "ms", [(f"{_NODE}_record_e2e_latency_p99", "{{processor_node_id}} p99")]),
    ],
    "Losses": [
        (
            "Dropped, by reason",
            "ops",
            [
                (
                    f"sum by (processor_node_id, reason) ({_NODE}_dropped_records_rate)",
                    "{{processor_node_id}}: {{reason}}",
                )
            ],
        ),
        (
            "Late, as a share of the records",
            "percentunit",
            [
                (
                    f'sum by (task_id) (rate({_NODE}_dropped_records_total{{reason=~"late|expired|out of order"}}[5m]))'
                    f" / sum by (task_id) (rate({_TASK}_process_total[5m]))",
                    "{{task_id}}",
                )
            ],
        ),
        (
            "Dead letters, by reason",
            "ops",
            [
                (
                    f"sum by (processor_node_id, reason) ({_NODE}_dead_letter_records_rate)",
                    "{{processor_node_id}}: {{reason}}",
                )
            ],
        ),
        ("Dead letters", "short", [(f"sum by (task_id) ({_TASK}_dead_letters_total)", "{{task_id}}")]),
        (
            "Keys in another partition",
            "short",
            [(f"sum by (topic, reason) ({_TASK}_misplaced_keys_total)", "{{topic}}: {{reason}}")],
        ),
        ("Waits cut short", "short", [(f"increase({_THREAD}_repartition_wait_ended_total[5m])", "{{thread_id}}")]),
        ("Out of the group", "short", [(f"increase({_THREAD}_fenced_total[5m])", "{{thread_id}}")]),
    ],
    "Calls and batches": [
        ("Calls", "ops", [(f"sum by (processor_node_id) ({_NODE}_call_rate)", "{{processor_node_id}}")]),
        (
            "Calls in flight",
            "short",
            [(f"sum by (processor_node_id) ({_NODE}_calls_in_flight)", "{{processor_node_id}}")],
        ),
        (
            "Records that wait",
            "short",
            [(f"sum by (processor_node_id) ({_NODE}_records_held)", "{{processor_node_id}}")],
        ),
        (
            "Time of a call",
            "ms",
            [
                (f"{_NODE}_call_latency_avg", "{{processor_node_id}} avg"),
                (f"{_NODE}_call_latency_p99", "{{processor_node_id}} p99"),
            ],
        ),
        (
            "Retries, time-outs and failures",
            "ops",
            [
                (f"sum by (processor_node_id) ({_NODE}_call_{what}_rate)", f"{{{{processor_node_id}}}} {what}")
                for what in ("retry", "timeout", "failed")
            ],
        ),
        (
            "Look-ups, by answer",
            "ops",
            [
                (f"sum by (processor_node_id) ({_NODE}_look_up_{what}_rate)", f"{{{{processor_node_id}}}} {what}")
                for what in ("hit", "stale_hit", "negative_hit", "miss")
            ],
        ),
        ("Records of a batch", "short", [(f"{_NODE}_batch_records_avg", "{{processor_node_id}}")]),
        ("Time of a batch", "ms", [(f"{_NODE}_batch_latency_avg", "{{processor_node_id}}")]),
    ],
    "Restore": [
        ("Records to restore", "short", [(f"{_TASK}_restore_remaining_records_total", "{{task_id}}")]),
        ("Time to the end", "ms", [(f"{_TASK}_restore_eta_ms", "{{task_id}}")]),
        ("Restored", "ops", [(f"{_TASK}_restore_rate", "{{task_id}}")]),
    ],
    "Topics": [
        ("Consumed", "ops", [(f"sum by (topic) (rate({_TOPIC}_records_consumed_total[1m]))", "{{topic}}")]),
        ("Produced", "ops", [(f"sum by (topic) (rate({_TOPIC}_records_produced_total[1m]))", "{{topic}}")]),
        ("Bytes consumed", "Bps", [(f"sum by (topic) (rate({_TOPIC}_bytes_consumed_total[1m]))", "{{topic}}")]),
        ("Bytes produced", "Bps", [(f"sum by (topic) (rate({_TOPIC}_bytes_produced_total[1m]))", "{{topic}}")]),
    ],
    "Clients": [
        ("Largest lag of a partition", "short", [(f"{_FETCH}_records_lag_max", "{{client_id}}")]),
        ("Records consumed", "ops", [(f"{_FETCH}_records_consumed_rate", "{{client_id}}")]),
        ("Time of a fetch", "ms", [(f"{_FETCH}_fetch_latency_avg", "{{client_id}}")]),
        ("Records sent", "ops", [(f"{_PRODUCER}_record_send_rate", "{{client_id}}")]),
        ("Time of a produce request", "ms", [(f"{_PRODUCER}_request_latency_avg", "{{client_id}}")]),
        ("Size of a batch", "bytes", [(f"{_PRODUCER}_batch_size_avg", "{{client_id}}")]),
        (
            "Records sent again, or failed",
            "ops",
            [
                (f"{_PRODUCER}_record_retry_rate", "{{client_id}} again"),
                (f"{_PRODUCER}_record_error_rate", "{{client_id}} failed"),
            ],
        ),
        ("Free bytes of the buffer", "bytes", [(f"{_PRODUCER}_buffer_available_bytes", "{{client_id}}")]),
    ],
    "Stores": [
        ("Keys", "short", [(f"{_STATE}_estimate_num_keys", "{{task_id}}")]),
        ("Files", "bytes", [(f"{_STATE}_total_sst_files_size", "{{task_id}} {{rocksdb_state_id}}")]),
        ("Memtables", "bytes", [(f"{_STATE}_size_all_mem_tables", "{{task_id}} {{rocksdb_state_id}}")]),
        (
            "Block cache",
            "bytes",
            [(f"max({_STATE}_block_cache_usage)", "used"), (f"max({_STATE}_block_cache_capacity)", "size")],
        ),
        ("Hits of record caches", "percentunit", [(f"{_CACHE}_hit_ratio_avg", "{{record_cache_id}}")]),
        (
            "Time of calls (level debug)",
            "ns",
            [(f"avg({_STATE}_{call}_latency_avg)", call) for call in ("get", "put", "fetch", "range")],
        ),
    ],
}


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, found in ROWS.items():
        panels.append({"type": "row", "title": row, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        width = 24 // min(len(found), 4)
        for number, (title, unit, queries) in enumerate(found):
            at = {"x": number % 4 * width, "y": y + 1 + number // 4 * 8, "w": width, "h": 8}
            panels.append(
                {
                    "type": "timeseries",
                    "title": title,
                    "datasource": {"type": "prometheus", "uid": "${source}"},
                    "gridPos": at,
                    "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
                    "targets": [
                        {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
                        for index, (query, legend) in enumerate(queries)
                    ],
                }
            )
        y += 1 + 8 * -(-len(found) // 4)
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "title": "Streams",
        "uid": "streams",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def page() -> str:
    """Return the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
