"""The report: one page for people, made from the tables of ``analyse``."""

from bccnd.pipeline.report.page import write
from bccnd.pipeline.report.said import Said

__all__ = ["Said", "write"]
