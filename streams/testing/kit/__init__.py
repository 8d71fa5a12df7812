"""The kits for sinks and sources, which kill workers at each step; ``sink_kit`` and ``source_kit`` are their doors.

``worker_faults`` has what fails and how, ``victims`` the workers that are killed, here or in processes of their own.
``sink_check`` and ``source_check`` go through the steps, ``sink_faults`` and ``source_faults`` wrap a connector,
``sink_contract`` calls a sink without a worker, and ``sink_rows`` compares the rows of its target.
"""
