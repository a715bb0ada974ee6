"""`python -m harness.schemas`: write the schemas anew after a record changed."""

from harness.schemas import write

if __name__ == "__main__":
    write()
