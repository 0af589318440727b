"""HTTP: one file per resource. Request in, one call, response out; no behaviour."""
