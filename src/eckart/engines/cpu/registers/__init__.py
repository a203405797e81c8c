"""Steps written as LLVM vectors, for the widths that processors have."""
