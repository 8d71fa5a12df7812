"""A daily replay as a DAG of Apache Airflow 3: each night, what is new in the folder of events is processed.

``replay`` continues the replay of the night before, sorts rows that came late into the history, and computes again what
they change (``--repair``).  If it is killed, the next attempt continues with the work that is complete, and each row is
written once.  ``verify`` checks the files of the snapshot, from which an application can go live.

Airflow's workers need streams (``pip install`` of a checkout or a wheel) and the folder ``SHOP`` (default: the current
folder), which has the script of the topology, the events, and everything that the runs keep.
"""

import os
import shlex
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

SHOP = os.environ.get("SHOP", ".")
REPLAY = [
    *("streams", "replay", "shop.py"),
    *("--input", "orders=events"),
    *("--partitions", "2"),
    *("--executor", "local"),
    *("--snapshot", "state"),
    *("--resume", "--repair"),
    *("--output", "days=parquet:lake/by-day"),
    *("--partition-by", "days=day"),
    *("--report", "report.json"),
]

with DAG(
    "shop_daily",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # A run processes all that is new, also of days without a run.
    max_active_runs=1,  # A folder has one replay at a time.
):
    replay = BashOperator(
        task_id="replay", bash_command=shlex.join(REPLAY), cwd=SHOP, retries=3, retry_delay=timedelta(minutes=5)
    )
    verify = BashOperator(task_id="verify", bash_command="streams snapshot verify state", cwd=SHOP)
    replay >> verify
