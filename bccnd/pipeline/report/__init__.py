"""The report: one page for people from the tables of the analysis."""

from bccnd.pipeline.report.page import write

__all__ = ["write"]
