"""The tests, as a package so that they can share sample runs and simulators."""
