"""A small order service: orders come in, invoices are written, customers get emails."""
