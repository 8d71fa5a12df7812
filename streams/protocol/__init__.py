"""The words between client and broker: messages, record batches, transport."""
