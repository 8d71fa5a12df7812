"""Tables of Kafka's APIs: their fields by version, from its message definitions."""
