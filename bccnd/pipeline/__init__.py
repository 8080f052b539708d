"""What a network lost, where and when: Spark jobs over what ``bccnd-record`` wrote.

``ingest`` copies the recorded files, each exactly once; ``analyse`` makes tables of them; ``report`` makes a page for
people of the tables. ``layout`` says what lies where. Each table has a module of its own, whose functions only turn
DataFrames into DataFrames.
"""
