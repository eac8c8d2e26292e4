#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Each file under src has the includes that it needs, by itself or by headers of Swell that it includes.

A build with precompiled headers (src/pch/precompiled.h) compiles without them, and an admin's build does not. HEADERS says which
header of the standard declares a name; a file that uses a name of std:: that stands in no line fails until it is added."""

import os
import re
import sys
import tempfile

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# Headers, any of which declares the names behind them: those of the standard, and those that include them in every libstdc++.
HEADERS = """
cstddef cstdint cstring string string_view vector map set memory array cstdlib cstdio ctime span: size_t ptrdiff_t
cstddef: byte max_align_t nullptr_t
utility algorithm map memory functional optional set string vector thread mutex variant tuple: move exchange swap forward in_place
utility: declval cmp_less cmp_greater
variant: in_place_index variant visit get_if holds_alternative monostate variant_size_v variant_alternative_t bad_variant_access in_place_type
utility map: pair make_pair
utility tuple array variant: get
tuple: tuple tie make_tuple tuple_size_v apply forward_as_tuple
iterator string vector map set array string_view span deque: begin end size data ssize next prev empty back_inserter make_move_iterator inserter advance distance
initializer_list string vector map set memory: initializer_list
cstdint: uint64_t int64_t uint32_t int32_t uint8_t int8_t uint16_t int16_t uintptr_t intptr_t
string: string to_string stoi stol stoul stod stoull stoll u8string
string fstream sstream iostream: getline
string_view string: string_view
vector: vector
vector string map set deque unordered_map: erase_if erase
optional: optional nullopt make_optional
map: map multimap
set: set multiset
unordered_map: unordered_map unordered_multimap
unordered_set: unordered_set
deque: deque
list: list
queue: queue priority_queue
array: array to_array
span: span as_bytes
bitset: bitset
bit: popcount countr_zero countl_zero rotr rotl has_single_bit endian bit_cast bit_floor bit_ceil bit_width
memory: shared_ptr unique_ptr weak_ptr make_shared make_unique enable_shared_from_this addressof static_pointer_cast dynamic_pointer_cast
functional: function ref cref reference_wrapper invoke not_fn bind
functional map set queue: less greater
functional string string_view memory: hash
chrono: chrono chrono_literals milli ratio
thread: thread jthread
thread chrono: this_thread
mutex: mutex lock_guard unique_lock scoped_lock once_flag call_once recursive_mutex
condition_variable: condition_variable cv_status
atomic: atomic atomic_ref memory_order_relaxed memory_order_acquire memory_order_release atomic_thread_fence
future: future future_status promise packaged_task async
limits: numeric_limits
random: mt19937 mt19937_64 random_device uniform_real_distribution uniform_int_distribution normal_distribution minstd_rand
algorithm: max min any_of all_of none_of find find_if find_if_not find_first_of sort stable_sort clamp max_element min_element minmax lower_bound upper_bound equal_range
algorithm: count count_if binary_search replace unique transform nth_element equal stable_partition partition reverse next_permutation copy copy_if copy_n rotate push_heap pop_heap
algorithm: make_heap for_each for_each_n shuffle partial_sort mismatch merge is_sorted fill fill_n adjacent_find remove remove_if search includes max_element set_difference lexicographical_compare
algorithm ranges: ranges views
numeric: iota accumulate gcd lcm partial_sum reduce inner_product
cmath: isfinite isnan isinf pow ceil log floor sqrt exp lround llround round log2 log1p log10 expm1 cos sin ldexp hypot fmod fabs exp2 trunc nearbyint
cmath cstdlib string: abs
cstring: strerror memcpy strlen strcmp memcmp strncpy strncmp strcspn strchr strrchr strstr memset memmove memchr
cstdlib string: getenv free malloc atoi strtod strtol strtoll strtoul strtoull aligned_alloc abort exit _Exit quick_exit calloc
cstdio string: FILE fprintf fflush fputs rename ferror sscanf fclose fwrite snprintf fread fopen fgetc printf puts fputc fgets perror
ctime: time tm strftime difftime mktime
ctime chrono: time_t
cctype: tolower toupper isalnum isspace isdigit isalpha isxdigit isupper islower isprint
csignal: signal sig_atomic_t raise
charconv system_error: errc
charconv: from_chars to_chars
sstream: istringstream ostringstream stringstream
fstream: ifstream ofstream fstream
fstream sstream iostream: ios flush
iostream fstream: ostream istream cout cerr
iterator fstream sstream: istreambuf_iterator ostream_iterator
filesystem: filesystem
exception stdexcept memory new system_error thread: exception
exception: exception_ptr rethrow_exception current_exception terminate make_exception_ptr set_terminate
stdexcept: runtime_error logic_error invalid_argument out_of_range
new: bad_alloc align_val_t nothrow launder
system_error: system_error
system_error filesystem: error_code error_condition generic_category
type_traits: is_arithmetic_v is_same_v is_pointer_v is_enum_v is_convertible_v remove_reference_t decay_t enable_if_t is_trivially_copyable_v underlying_type_t conditional_t is_integral_v invoke_result_t
numbers: numbers
"""
# Names without std::, as C has them, and fmt. Headers of C and of the system count as those of C++ do.
PLAIN = {
    r"fmt::\w": "fmt/format.h fmt/core.h fmt/ranges.h fmt/chrono.h",
    r"(?<![\w:.>])(?:u?int(?:8|16|32|64)_t|U?INT(?:8|16|32|64)_MAX)\b": "cstdint stdint.h",
    r"(?<![\w:.>])(?:memcpy|memset|memmove|memcmp|strlen|strcmp|strncmp|strerror|strerror_r|strdup)\s*\(": "cstring string.h",
    r"(?<![\w:.>])errno\b": "cerrno errno.h",
    r"(?<![\w:.>])(?:getenv|setenv|unsetenv|strtol|strtoul|strtoull|mkstemp|mkdtemp|realpath|malloc|mkostemp)\s*\(": "cstdlib stdlib.h",
    r"(?<![\w:.>])(?:clock_gettime|gmtime_r|localtime_r|nanosleep)\s*\(": "ctime time.h",
    r"(?<![\w:.>])(?:fopen|fclose|fprintf|printf|snprintf|fputs|fdopen|fflush|popen|getline)\s*\(": "cstdio stdio.h",
    r"(?<![\w:.>])pthread_\w+\s*\(": "pthread.h csignal signal.h thread mutex",
    r"(?<![\w:.>])(?:INT_MAX|LONG_MAX|UINT_MAX|PATH_MAX|IOV_MAX)\b": "climits limits.h linux/limits.h",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
NO_CODE = re.compile(r'^\s*#\s*include[^\n]*|//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S | re.M)


def declared():
    found = {}
    for line in HEADERS.split("\n"):
        headers, _, names = line.partition(":")
        for name in names.split():
            found.setdefault(name, []).extend(headers.split())
    return found


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def headers_of(path, source):
    """Standard and system headers that the file has, itself or by headers under `source`."""
    todo, seen, found = [path], set(), set()
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        for kind, name in INCLUDE.findall(read(one)):
            near = [os.path.join(folder, name) for folder in (source, os.path.dirname(one)) if os.path.exists(os.path.join(folder, name))]
            if kind == '"' and near:
                todo.append(os.path.normpath(near[0]))
            else:
                found.add(name)
    return found


def missing(source):
    """(file, what it lacks) of all sources below a folder."""
    known, found = declared(), []
    for folder, _, names in sorted(os.walk(source)):
        for path in sorted(os.path.join(folder, name) for name in names if name.endswith((".cc", ".h"))):
            code, has = NO_CODE.sub(" ", read(path)), headers_of(path, source)
            for name in sorted(set(re.findall(r"\bstd::(\w+)", code))):
                if name not in known:
                    found.append((path, f"std::{name} stands in no line of HEADERS in tests/contrib/includes_test.py"))
                elif not has.intersection(known[name]):
                    found.append((path, f"std::{name} needs #include <{known[name][0]}>"))
            for pattern, headers in PLAIN.items():
                use = re.search(pattern, code)
                if use and not set(headers.split()) & has:
                    found.append((path, f"{use[0].strip(' (')} needs #include <{headers.split()[0]}>"))
    return found


def without_an_include(text, include):
    """Returns what is missing in two files, one of which has lost an include."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "own.h"), "w", encoding="utf-8") as file:
            file.write("#include <string>\n")
        with open(os.path.join(folder, "one.cc"), "w", encoding="utf-8") as file:
            file.write(text.replace(f"#include <{include}>\n", "") if include else text)
        return [what for _, what in missing(folder)]


WHOLE = """#include "own.h"
#include <cstdint>
#include <map>
#include <fmt/format.h>
// std::set is named here alone
std::string text() { return fmt::format("std::vector {}", std::map<int, std::uint64_t>{}.size()); }
"""
lost = [(None, []), ("map", ["std::map needs #include <map>"]), ("cstdint", ["std::uint64_t needs #include <cstdint>"]), ("fmt/format.h", ["fmt::f needs #include <fmt/format.h>"])]
failed = 0
for number, (name, problems) in enumerate([
        ("each file under src has the includes that it needs", [f"{os.path.relpath(path, TOP)}: {what}" for path, what in missing(os.path.join(TOP, "src"))]),
        ("a lost include is named", [f"without {include}: {without_an_include(WHOLE, include)}" for include, what in lost if without_an_include(WHOLE, include) != what]),
        ("a name of std:: that the table lacks is named", [] if without_an_include("std::no_such_name x;\n", None)[0].startswith("std::no_such_name stands in no line") else ["it was taken"]),
], 1):
    print(f"{'not ok' if problems else 'ok'} {number} - {name}")
    print("".join(f"# {line}\n" for line in problems), end="")
    failed += bool(problems)
print("1..3")
sys.exit(failed > 0)
