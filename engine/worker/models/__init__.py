"""Model families, one module or package each, exporting STAGES."""
