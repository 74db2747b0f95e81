"""A run as files for other programs: a folder, TensorBoard, a capsule, or a script for another tool."""
