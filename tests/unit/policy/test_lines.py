"""The line of everything in a TOML text, however it is written."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from callgate.policy.lines import lines_of, nearest

TRICKY = '''\
# [[rule]] in a comment
default = "[[rule]] = in a text"  # and "here"
roles = [  # ] in a comment
  "a]",
  'b[', # x

  """c
]""", "d",
]
[[rule]]
id = "a # no comment"
when = [
  # first
  { path = "/a}", op = "in", value = ["x", "]"] },
  { path = "/b", op = ">", value = 1 },
]

[rule.time]
days = ["mon"]

[[ "rule" ]]
"id" = \'\'\'
[[rule]]
\'\'\'
reason = """a \\""" b""""
time.zone = "UTC"
[[rule.when]]
path = "/c"
[[rule.when]]
path = "/d"
'''.replace('op = ">",\n    value', 'op = ">", value')


def line(part: str, nth: int = 0) -> int:
    lines = [number for number, text in enumerate(TRICKY.splitlines(), 1) if part in text]
    return lines[nth]


def test_the_line_of_everything_is_found():
    lines = lines_of(TRICKY)
    assert lines["default",] == 2
    assert lines["roles",] == 3
    assert [lines["roles", place] for place in range(4)] == [4, 5, 7, 8]
    assert lines["rule", 0] == 10
    assert lines["rule", 0, "id"] == 11
    assert lines["rule", 0, "when"] == 12
    assert lines["rule", 0, "when", 0, "op"] == 14
    assert lines["rule", 0, "when", 1] == lines["rule", 0, "when", 1, "value"] == 15
    assert lines["rule", 0, "time", "days"] == line("days")
    assert lines["rule", 1] == line('[[ "rule" ]]')
    assert lines["rule", 1, "id"] == line('"id" =')
    assert lines["rule", 1, "reason"] == line("reason =")
    assert lines["rule", 1, "time", "zone"] == line("time.zone")
    assert lines["rule", 1, "when", 1, "path"] == line("/d")


def test_what_is_not_written_is_looked_for_in_what_holds_it():
    lines = lines_of("\n[[rule]]\nid = 1")
    assert nearest(lines, ("rule", 0, "decision")) == 2
    assert nearest(lines, ("rule", 0, "id", "x")) == 3
    assert nearest(lines, ("budget", 0)) is None
    assert nearest(lines, ()) is None


# ── any formatting ───────────────────────────────────────────────────────────────────────────────────────────────────────

texts = st.text(st.sampled_from("ab[]{}#=,.\\\"' \n\u00e9"), max_size=6)
values = st.recursive(
    st.integers(0, 99) | st.booleans() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b c", "d.e"]), inner, max_size=2),
    max_leaves=6,
)
comment = st.sampled_from(["", " # x", '  # [[rule]] "', "\t# ]}'"])
gaps = st.lists(st.sampled_from(["", "   ", "# [x]", '\t# = """']), max_size=2)


@st.composite
def written(draw, value):
    """Write a value as TOML, one way or another."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return draw(written_text(value))
    if isinstance(value, dict):
        return "{ " + ", ".join([f"{key_of(key)} = {draw(written(each))}" for key, each in value.items()]) + " }"
    parts = ["["]
    for each in value:
        parts += [draw(st.sampled_from(["", " ", "\n", " # ]\n  "])), draw(written(each)), draw(st.sampled_from(["", "\n"])), ","]
    return "".join(parts) + draw(st.sampled_from(["", "\n", "# x\n"])) + "]"


@st.composite
def written_text(draw, text):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    ways = ['"' + escaped.replace("\n", "\\n") + '"', '"""\n' + escaped + '"""', '"""\\\n  ' + escaped.lstrip(" \n") + '"""']
    ways = ways if not text[:1].isspace() else ways[:2]
    if "'" not in text:
        ways += ["'''\n" + text + "'''"] + ([f"'{text}'"] if "\n" not in text else [])
    return draw(st.sampled_from(ways))


def key_of(key):
    return key if key.isalnum() else f'"{key}"'


@st.composite
def documents(draw):
    """Give a text and the lines of its keys, known because it is written here line by line."""
    out, lines = [], {}

    def put(text, *way):
        if way:
            lines[way] = sum(part.count("\n") for part in out) + 1
        out.append(text + draw(comment) + "\n")

    def put_pairs(table, *way):
        for key, value in table.items():
            out.extend(gap + "\n" for gap in draw(gaps))
            put(f"{key_of(key)}{draw(st.sampled_from([' = ', '=', ' =  ']))}{draw(written(value))}", *way, key)

    tables = st.dictionaries(st.sampled_from(["id", "when", "x y", "n-1"]), values, max_size=3)
    put_pairs(draw(st.dictionaries(st.sampled_from(["default", "roles"]), values, max_size=2)))
    for place in range(draw(st.integers(0, 3))):
        put(draw(st.sampled_from(["[[rule]]", "[[ rule ]]", '[["rule"]]', "  [[rule]]"])), "rule", place)
        put_pairs(draw(tables), "rule", place)
        if draw(st.booleans()):
            put(draw(st.sampled_from(["[rule.time]", "[ rule . 'time' ]"])), "rule", place, "time")
            put_pairs(draw(tables), "rule", place, "time")
        for inner in range(draw(st.integers(0, 2))):
            put("[[rule.conditions]]", "rule", place, "conditions", inner)
            put_pairs(draw(tables), "rule", place, "conditions", inner)
    return "".join(out), lines


def ways_of(value, *way):
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield from [way] if way else []
    for key, each in inside:
        yield from ways_of(each, *way, key)


@given(documents())
def test_the_line_of_each_key_is_right_however_a_text_is_written(document):
    text, known = document
    lines = lines_of(text)
    assert {way: lines.get(way) for way in known} == known
    assert set(ways_of(tomllib.loads(text))) == set(lines), "everything that is there has a line, and nothing else has"
