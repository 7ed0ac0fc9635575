"""The parts of the verdict: each reads the records of a run and says what they prove."""
