"""Formats that cross a process: each is written and read by one codec here, and spelled nowhere else.

Change a format only so that what earlier versions wrote is still read: tests/unit/model/test_wire.py holds old texts.
"""
