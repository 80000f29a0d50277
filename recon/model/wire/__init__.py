"""Formats that cross a process, each written and read in one place."""
