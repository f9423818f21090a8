"""The programs of a test, and the dependencies that stand beside the brokers."""
