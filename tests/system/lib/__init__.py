"""Tests of Farwrite between network namespaces. They use only Python's standard library and
Debian's tools."""
