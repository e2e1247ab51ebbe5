"""What the layers for web frameworks share. It knows no framework."""
