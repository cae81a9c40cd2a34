"""Arrays on disk, box by box: `.npy` files and checkpoints that several ranks write and read, each its own part."""
