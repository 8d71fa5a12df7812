"""The plan of an application: its tasks and topics, before anything is opened."""
