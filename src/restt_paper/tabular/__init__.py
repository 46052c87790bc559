"""Table VI: regression on two small tables."""
