"""The protocol between client and broker: messages, record batches and transport."""
