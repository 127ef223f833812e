"""The contract classes are imported by the modules that run them, so pytest is told to explain their assertions too."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "tests.contract.log_api",
    "tests.contract.log_api_topics",
    "tests.contract.log_api_rows",
    "tests.contract.log_api_reading",
    "tests.contract.log_api_transactions",
    "tests.contract.log_api_groups",
    "tests.contract.log_api_upkeep",
)
