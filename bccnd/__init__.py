"""bccnd: messaging between the programs of a network segment, without a broker."""

__version__ = "0.1.0"
