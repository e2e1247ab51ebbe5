"""What the layers for web frameworks share. No module here knows a framework, and applications import none of them."""
