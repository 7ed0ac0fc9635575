"""The node stage's tests: drop a `test_*.py` in here and it runs on every node (docs/add-a-check.md)."""
