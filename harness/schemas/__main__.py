"""`python -m harness.schemas`: write the schemas and docs/records.md anew after a record changed."""

from harness.schemas import documents, write

if __name__ == "__main__":
    write()
    documents.write()
