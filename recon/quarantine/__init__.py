"""Rows put aside: which rows of a micro-batch fail, where they wait, and how they come back."""
