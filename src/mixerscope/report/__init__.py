"""The report: finished runs in, one HTML page and `summary.json` out."""

from mixerscope.report.charts import save_chart
from mixerscope.report.page import write_report

__all__ = ["save_chart", "write_report"]
