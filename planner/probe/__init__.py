"""Measuring a machine: small plans are run on it like any other, and their events become curves."""
