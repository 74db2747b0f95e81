"""Files: where they are kept, written such that no reader sees half of one, and read with every fault named."""
