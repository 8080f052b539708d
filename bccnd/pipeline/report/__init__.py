"""The report: one page for people from the tables of the analysis. ``page.write`` makes it."""
