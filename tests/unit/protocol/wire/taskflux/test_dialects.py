"""Which dialect a client speaks, by the version that it says."""

import pytest

from wakeq.protocol.wire.taskflux.commands import BootstrapRequest
from wakeq.protocol.wire.taskflux.dialects import CSHARP, LEGACY, SPEC, Dialect, dialect_of


@pytest.mark.parametrize("configured", [SPEC, CSHARP], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("patch", [0, 7, -1])
def test_patch_never_matters(configured: Dialect, patch: int) -> None:
    assert dialect_of(BootstrapRequest(1, 0, patch), configured) is configured
    assert dialect_of(BootstrapRequest(0, 1, patch), configured) is LEGACY


@pytest.mark.parametrize(("major", "minor"), [(1, 1), (2, 0), (0, 0), (0, 2), (-1, 0), (2**31 - 1, 0)])
def test_versions_other_than_ours_are_not_served(major: int, minor: int) -> None:
    assert dialect_of(BootstrapRequest(major, minor, 0), SPEC) is None
