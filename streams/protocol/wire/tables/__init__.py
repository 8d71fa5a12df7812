"""Tables of Kafka's APIs: their fields by version, as in its message definitions.  Used by ``apis`` alone."""
