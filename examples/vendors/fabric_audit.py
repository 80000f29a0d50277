# Fabric notebook source

# CELL ********************

# The environment of this notebook has the libraries: those of requirements.txt, and the wheel of spark-recon.
import os

import notebookutils

import recon

# recon.yml: storage_options: {bearer_token: "{{ env_var('ONELAKE_TOKEN') }}", use_fabric_endpoint: "true"}
os.environ["ONELAKE_TOKEN"] = notebookutils.credentials.getToken("storage")
os.environ["KAFKA_PASSWORD"] = notebookutils.credentials.getSecret("https://shop.vault.azure.net/", "kafka-password")

run = recon.run_audit("/lakehouse/default/Files/shop", spark=spark, require_complete=True)  # noqa: F821
run  # noqa: B018

# CELL ********************

if run.exit_code:
    raise SystemExit(f"recon audit: exit code {run.exit_code}")
