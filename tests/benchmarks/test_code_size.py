"""What benchmarks/code_size.py counts."""

from __future__ import annotations

import textwrap

from benchmarks.code_size import Source, read, repeated_classes

TEXT = textwrap.dedent(
    """\
    \'\'\'A docstring
    of two lines.\'\'\'

    LIMIT = 3  # a comment after code
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
            self.a, self.b = 1, 2
            width, height = 3, 4
            return knock()  # fmt: skip
    """
)


def test_counts_code_without_blank_lines_comments_and_docstrings() -> None:
    assert read(TEXT, "app/hall.py") == Source(
        "app/hall.py",
        lines=12,
        functions={"Hall.door": 5, "Hall.door.knock": 1},
        classes=frozenset({"Hall"}),
        packed=1,
        unformatted=1,
    )


def test_a_class_name_may_repeat_once_per_model_family() -> None:
    names = ("app/a.py", "app/b.py", "engine/worker/models/one/talker.py", "engine/worker/models/two/talker.py")
    files = [
        read(f"class {'Talker' if 'talker' in name else 'Offer'}:\n    pass\n\n\nclass _Private:\n    pass\n", name)
        for name in names
    ]
    assert repeated_classes(files) == {"Offer": ["app/a.py", "app/b.py"]}


def test_a_function_that_is_one_match_has_the_lines_of_its_longest_case() -> None:
    cases = "".join(f"        case {n}:\n            print()\n            return {n}\n" for n in range(30))
    assert read(f"def kind(x: int) -> int:\n    match x:\n{cases}", "app/a.py").functions == {"kind": 2}
