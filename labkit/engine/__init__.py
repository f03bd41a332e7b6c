"""What runs inside the ranks: the only part of labkit that imports torch."""
