"""The shared part of the layers for web frameworks. No module here knows a framework, and applications import none."""
