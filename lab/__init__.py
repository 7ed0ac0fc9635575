"""Throwaway nodes on this machine: a rehearsal lab of system containers in a network of its own."""
