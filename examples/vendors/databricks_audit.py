# Databricks notebook source
# MAGIC %pip install --no-deps /Workspace/Shared/shop/spark_recon-0.1.0-py3-none-any.whl

# COMMAND ----------

# MAGIC %pip install -r /Workspace/Shared/shop/requirements.txt

# COMMAND ----------

dbutils.library.restartPython()  # noqa: F821

# COMMAND ----------

import recon  # noqa: E402

run = recon.run_audit(dbutils.widgets.get("project"), spark=spark, require_complete=True)  # noqa: F821
run  # noqa: B018

# COMMAND ----------

if run.exit_code:
    raise SystemExit(f"recon audit: exit code {run.exit_code}; see the table above and target/report.html")
