"""HTTP over saved models: JSON and Arrow in, answers with their reason out."""
