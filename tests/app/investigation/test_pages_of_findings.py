"""Every finding points to a page that exists, so that a fault never lacks its fixes by a typing slip."""

from __future__ import annotations

import pytest
from evals.cases import load_cases
from evals.diagnosed import Diagnoses

from firstfault_tools.findings import Level


@pytest.mark.xdist_group("cases")
@pytest.mark.timeout(1200)
def test_pages_exist(diagnoses: Diagnoses) -> None:
    pages = diagnoses.workspace.knowledge.pages
    wrong: list[str] = []
    for case in load_cases():
        made = diagnoses.of(case)
        unknown = {(f.kind, f.page) for f in made.findings if f.page and f.page not in pages}
        wrong += [f"{case.id}: {kind} names the page {page}" for kind, page in sorted(unknown)]
        if made.first is not None and made.first.level is Level.CAUSE and not made.first.page:
            wrong.append(f"{case.id}: {made.first.kind} leads and has no page")
    assert not wrong, "\n".join(wrong)
