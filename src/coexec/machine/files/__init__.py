"""Platform files: read, checked and expanded to a platform, and written again."""
