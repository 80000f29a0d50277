"""Judge: witnesses and rows in, findings out. Pure; one module per family of checks."""
