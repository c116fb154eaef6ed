"""Secrets of a job, kept out of texts and results that people see.

`hidden` in `accoda.envelope` hides a field by its name. This package finds the field's value where it has no name: in
the text of an error, a traceback, a progress message, a result. What it cannot find is in docs/security.md.
"""

from accoda.masking.mask import NO_MASK, Mask, mask_of, named_values

__all__ = ["NO_MASK", "Mask", "mask_of", "named_values"]
