"""Security of a test's cluster: an authority, an issuer of tokens, users, settings of brokers and clients (A5)."""
