"""The report: finished runs in, one HTML page and `summary.json` out."""

from mixerscope.report.charts import save_chart
from mixerscope.report.figures import accuracy_by_width, emergence_of, heat_map, learning_curves
from mixerscope.report.page import write_report

__all__ = ["accuracy_by_width", "emergence_of", "heat_map", "learning_curves", "save_chart", "write_report"]
