"""Tests of Farwrite between network namespaces. Python's standard library and Debian's tools only."""
