"""The console page in a browser."""
