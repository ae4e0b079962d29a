"""What scripts/sizes.py counts: lines of code, by file, by function and by part."""

from __future__ import annotations

import textwrap

import pytest

from scripts.sizes import APP, CORE, FUNCTION, SHARED, Part, Source, parts, read, too_large

TEXT = textwrap.dedent(
    """\
    \'\'\'A docstring
    of two lines.\'\'\'

    LIMIT = 3  # a comment behind code
    # a comment alone
    \'\'\'What LIMIT is.\'\'\'

    LONG = \'\'\'a string
    that is code
    \'\'\'


    class Hall:
        \'\'\'Says something.\'\'\'

        @property
        def door(self) -> int:
            \'\'\'Also says something.\'\'\'

            def knock() -> int:
                return LIMIT

            # why
            return knock()
    """
)


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    counted = read(TEXT, "app/hall.py")
    assert counted == Source("app/hall.py", 10, {"Hall.door": 4, "Hall.door.knock": 2})


def test_every_part_is_the_sum_of_its_files() -> None:
    names = ("app/a.py", "app/b/c.py", "engine/core.py", "engine/control/pool.py", "engine/worker/process.py",
             "engine/worker/clauses.py", "engine/worker/llm/media.py", "engine/worker/models/mine.py",
             "engine/worker/stages/asr/mine.py", "web/demo.py")  # fmt: skip
    found = parts([Source(name, 1, {}) for name in names])
    assert found == {APP: 2, CORE: 3, SHARED: 2, Part("mine", 1500): 1, Part("asr.mine", 250): 1}


@pytest.mark.parametrize("within", ["app", "engine/worker"])
def test_what_is_too_large_is_named(within: str) -> None:
    name = f"{within}/x.py"
    assert too_large([Source(name, 300, {"f": FUNCTION})], {APP: APP.most}) == []
    assert too_large([Source(name, 301, {"f": FUNCTION + 1})], {APP: APP.most + 1}) == [
        f"app: {APP.most + 1} lines, {APP.most} at most",
        f"{name}: 301 lines, 300 at most",
        f"{name}:f: 41 lines, 40 at most",
    ]
