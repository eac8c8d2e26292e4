# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds sentences that docs/style.md forbids. Used by contrib/format --check.

    prose.py            reads paths from standard input, separated by NUL, and prints "FILE:LINE: what is wrong"
    prose.py --titles   reads lines "COMMIT TITLE" from standard input, and prints "COMMIT: what is wrong"

Exits with 1 if anything was printed.
"""

import bisect
import re
import sys

WORDS = re.compile(r"(?:Of|What|Who|Whose|Nor)\b")
# A sentence begins with the comment, after the end of another one, after a blank line, as an item of a list, or behind @param NAME.
SENTENCE = re.compile(r"(?:\A|(?<=\0\n)|(?<=[.!?])\s|(?<=[.!?][)\"'`])\s|\n(?:[-*] |\d+\. )|@\w+(?:\[\w+\])?(?: \w+)? )[ \t]*(?:[-*] +)?")
SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
# "there is no job 7" and "is no longer" are English.
NO_NOUN = re.compile(r"(?<!here )\b(?:is|are) no (?!more\b|less\b|one\b|[a-z]+er\b)[a-z]", re.IGNORECASE)

CPP = re.compile(r'(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)|R"(?P<mark>[^(\s]*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<string>(?:\\.|[^"\\\n])*)"'
                 r"|(?<![0-9A-Za-z])'(?:\\.|[^'\\\n])+'", re.DOTALL)
PYTHON = re.compile(r'(?P<line>#[^\n]*)|(?P<triple>"""|' + r"''')(?P<raw>.*?)(?P=triple)" +
                    r'|"(?P<string>(?:\\.|[^"\\\n])*)"' + r"|'(?P<single>(?:\\.|[^'\\\n])*)'", re.DOTALL)
HASH = re.compile(r"(?P<line>(?:(?<=^)|(?<=[ \t;]))#(?![{!])[^\n]*)|(?P<dnl>\bdnl\b[^\n]*)", re.MULTILINE)
COMMENT_MARK = re.compile(r"^[ \t]*(?:///?<?|/?\*+/?|#+:?|dnl)[ \t]?", re.MULTILINE)


class Page:
    """One file: its text and what was found in it."""

    def __init__(self, path, text):
        self.path, self.text, self.found = path, text, []
        self.starts = [0] + [match.end() for match in re.finditer("\n", text)]

    def line(self, offset):
        return bisect.bisect_right(self.starts, offset)

    def add(self, line, text):
        self.found.append((line, text))


def check_prose(page, offset, text):
    """Adds each headless sentence of the comment block `text`, which begins at `offset`. Questions are allowed."""
    plain = COMMENT_MARK.sub("", text)  # has as many lines as `text`
    if not WORDS.search(plain):
        return
    first = page.line(offset)
    joined = "\n".join(line.rstrip() or "\0" for line in plain.split("\n"))
    for start in SENTENCE.finditer(joined):
        opener = WORDS.match(joined, start.end())
        if not opener:
            continue
        end = SENTENCE_END.search(joined, opener.end())
        if end and end.group() == "?":
            continue
        rest = joined[opener.start():opener.start() + 60].replace("\n", " ").replace("\0", "")
        page.add(first + joined.count("\n", 0, opener.start()), f'a sentence opens with "{opener.group()}": {rest}')


def check_string(page, offset, text):
    """Adds the first "is no X" of a string that begins at `offset`."""
    match = NO_NOUN.search(text)
    if match:
        page.add(page.line(offset + match.start()), f'say "is not a", not "{match.group().split()[0]} no": {text[max(match.start() - 20, 0):match.end() + 25].strip()}')


def blocks(page, spans):
    """Joins comments on consecutive lines, given as (offset, text), and checks each block. One behind code begins its own block."""
    block, start, last = [], 0, -2
    for offset, text in spans:
        line = page.line(offset)
        behind_code = page.text[page.starts[line - 1]:offset].strip() != ""
        if block and (line != last + 1 or behind_code):
            check_prose(page, start, "\n".join(block))
            block = []
        if not block:
            start = offset
        block.append(text)
        last = line
    if block:
        check_prose(page, start, "\n".join(block))


def check_cpp(page):
    """Checks the comments of C++ or C, and its strings."""
    lines = []
    for match in CPP.finditer(page.text):
        if match.group("line"):
            lines.append((match.start(), match.group()))
        elif match.group("block"):
            check_prose(page, match.start(), match.group().removesuffix("*/"))
        else:
            text = match.group("raw") or match.group("string")
            if text:
                check_string(page, match.start(), text)
    blocks(page, lines)


def check_python(page):
    """Checks comments, docstrings and other strings."""
    lines = []
    for match in PYTHON.finditer(page.text):
        if match.group("line"):
            lines.append((match.start(), match.group()))
            continue
        text = match.group("raw") or match.group("string") or match.group("single") or ""
        line_start = page.starts[page.line(match.start()) - 1]
        if match.group("triple") and not page.text[line_start:match.start()].strip(" rfb"):
            check_prose(page, match.start(), text)
        else:
            check_string(page, match.start(), text)
    blocks(page, lines)


def check_hash(page):
    """Checks the comments of shell, make, m4 and the like; all else counts as strings."""
    spans = []
    for match in HASH.finditer(page.text):
        spans.append((match.start(), match.group()))
    blocks(page, spans)
    code = HASH.sub("", page.text)  # comments end with their lines
    for number, line in enumerate(code.split("\n")):
        if NO_NOUN.search(line):
            check_string(page, page.starts[number], line)


def check_man(page):
    """Checks the text of a man page; each request of roff begins a sentence, but for fonts."""
    lines = ["" if line.startswith((".", "'")) and not re.match(r"\.[BIR]+ ", line) else re.sub(r"^\.[BIR]+ ", "", line).replace('\\"', "")
             for line in page.text.split("\n")]
    check_prose(page, 0, "\n".join(lines))


KINDS = (
    (re.compile(r"\.(?:cc|h|c|inc|map)$"), check_cpp),
    (re.compile(r"\.py$"), check_python),
    (re.compile(r"(?:^|/)man/.*\.[1-8]$"), check_man),
    (re.compile(r"\.(?:sh|am|ac|mk|m4|awk|toml|spec|in|post\w+|pre\w+)$|(?:^|/)(?:rules|\.ci/run|\.clang-format)$|(?:^|/)[^./]+$"), check_hash),
)
NOT_OURS = re.compile(r"(?:^|/)(?:corpus|COPYING)")


def check_file(path):
    """Returns what is wrong with the file, as (line, text), by line."""
    if NOT_OURS.search(path):
        return []
    for pattern, check in KINDS:
        if pattern.search(path):
            try:
                with open(path, encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                return []
            page = Page(path, text)
            check(page)
            return sorted(page.found)
    return []


TITLE = re.compile(r"(?P<area>[a-z0-9][a-z0-9_.,/ -]*): (?P<verb>[a-z]+(?:-[a-z]+)*)\b")
NOT_VERBS = frozenset("""a an the this that these those it its they their there who whom whose what which when where why how if of in on at by for from with
    without to into as no not nor nothing nobody none never all any each every some one two both few more most less many much only also new old other another
    and or but so than then while until after before because since is are was were be been has have had does did can could may might must shall should will
    would""".split())
BASE_FORMS = frozenset("""pass process press address access guess miss dismiss discuss assess express compress bypass focus bias cross suppress stress
    embed need feed speed exceed proceed seed shed shred bed wed bring ring string ping sing swing sling cling fling spring
    """.split())


def fault_of(title):
    """Returns what is wrong with the title of a commit, or None. A verb cannot be told for certain: refuses words and forms that are not verbs."""
    if len(title) > 72:
        return f"the title has {len(title)} columns, at most 72"
    match = TITLE.match(title)
    if not match:
        return 'the title must read "area: imperative"'
    verb = match.group("verb")
    if verb in NOT_VERBS or verb not in BASE_FORMS and re.search(r"(?:ed|ing|[^s]s)$", verb):
        return f'"{verb}" is not an imperative; the title must read "area: imperative"'
    return None


def main(arguments):
    found = 0
    if arguments == ["--titles"]:
        for line in sys.stdin.read().splitlines():
            commit, _, title = line.partition(" ")
            fault = fault_of(title)
            if fault:
                print(f"{commit}: {fault}: {title}")
                found += 1
    else:
        for path in filter(None, sys.stdin.read().split("\0")):
            for line, text in check_file(path):
                print(f"{path}:{line}: {text}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
