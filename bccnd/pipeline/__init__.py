"""What was lost on the network, where and when: Spark jobs over what ``bccnd-record`` wrote.

``ingest`` takes over what was recorded, exactly once; ``analyse`` makes tables of it; ``report`` a page for people.
``layout`` says what lies where; every table has a module whose functions only turn DataFrames into DataFrames.
"""
