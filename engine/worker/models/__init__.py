"""Model families: one module or package each, which exports STAGES (role to ``module:class``)."""
