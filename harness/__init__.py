"""inductor-atlas: what torch.compile generates on every machine you own."""

__version__ = "0.1.0"
