"""Tables of the Kafka APIs: their fields by version, based on Kafka's message definitions."""
