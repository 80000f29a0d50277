"""Column mapping for a Delta table that was written without it, as ALTER TABLE switches it on and renames columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def rename_columns(table: Path, names: Mapping[str, str]) -> None:
    """Names columns anew in the table's metadata; its files, their statistics and partition values keep the names."""
    file = table / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in file.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
        if (metadata := action.get("metaData")) is not None:
            schema = json.loads(metadata["schemaString"])
            for number, field in enumerate(schema["fields"], 1):
                field["metadata"] = {
                    "delta.columnMapping.id": number,
                    "delta.columnMapping.physicalName": field["name"],
                }
                field["name"] = names.get(field["name"], field["name"])
            metadata["schemaString"] = json.dumps(schema)
            metadata["partitionColumns"] = [names.get(name, name) for name in metadata["partitionColumns"]]
            metadata["configuration"] = {"delta.columnMapping.mode": "name"}
    file.write_text("\n".join(map(json.dumps, actions)) + "\n")
