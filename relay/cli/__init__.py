"""The command line: parse, delegate, show. The only package that prints."""
