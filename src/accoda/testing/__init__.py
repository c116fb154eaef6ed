"""What a storage author needs to prove a storage: a fixture to test in, the conformance suite, a model to compare with.

Needs the extra `accoda[testing]`. See docs/testing.md.
"""

import pytest

# The suite's modules are no test files, so pytest would leave their asserts without an explanation.
pytest.register_assert_rewrite("accoda.testing.conformance", "accoda.testing.model_pair")
