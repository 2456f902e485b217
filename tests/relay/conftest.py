"""The option that points the golden tests at another folder of the same format."""

from __future__ import annotations


def pytest_addoption(parser):
    parser.addoption("--golden", metavar="DIR", default=None, help="folder of golden *.safetensors files")
