# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes of another user at the sockets of a training.

strangers.py listeners PID...        the TCP ports that they listen on, a line each
strangers.py datagrams PID...        the abstract datagram sockets that they have
strangers.py USER silent N PORT...   opens N connections to each port and says nothing on them
strangers.py USER flood N PORT...    opens connections without end, and keeps the last N to each port
strangers.py USER garbage N PORT...  the same, and says what nobody understands
strangers.py USER send NAME...       sends datagrams without end
strangers.py sockets PID...          the UNIX sockets on which they listen
strangers.py USER reach PATH...      fails where it can connect to one of these UNIX sockets
strangers.py USER take PORT          fails where it can bind to the port, on any address
strangers.py USER meet NAME          connects to each port on which a process of this name begins to listen, and says garbage

Those of a USER are this user's processes. They say "here" when they have done once what they do, and go on until they are ended."""
import glob
import os
import pwd
import resource
import socket
import struct
import subprocess
import sys
import time


def inodes(pid):
    for fd in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def tcp_listeners(pids):
    """"address:port" of each."""
    own = {inode for pid in pids for inode in inodes(pid)}
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in open(f"/proc/net/{table}").readlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in own:
                host, port = words[1].split(":")
                raw = bytes.fromhex(host)
                raw = b"".join(struct.pack(">I", word) for word in struct.unpack(f"<{len(raw) // 4}I", raw))
                yield socket.inet_ntop(family, raw), int(port, 16)


def datagram_sockets(pids):
    own = {inode for pid in pids for inode in inodes(pid)}
    for line in open("/proc/net/unix").readlines()[1:]:
        words = line.split()
        if words[4] == "0002" and words[6] in own and len(words) > 7 and words[7].startswith("@"):
            yield words[7]


def unix_listeners(pids):
    own = {inode for pid in pids for inode in inodes(pid)}
    for line in open("/proc/net/unix").readlines()[1:]:
        words = line.split()
        if words[3] == "00010000" and words[6] in own and len(words) > 7 and words[7].startswith("/"):
            yield words[7]


def become(user):
    entry = pwd.getpwnam(user)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)


def connected(host, port):
    one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    one.settimeout(2)
    try:
        one.connect((host, port))
    except OSError:
        pass
    return one


def here():
    print("here", flush=True)


def connect(how, count, ports):
    open_, number = {}, 0
    while True:
        for port in ports:
            one = connected("127.0.0.1", port)
            if how == "garbage":
                try:
                    one.send(b"x" * 200)
                except OSError:
                    pass
            open_[number % count, port] = one       # which closes the one before
        number += 1
        if number == count:
            here()
        while how == "silent" and number == count:
            time.sleep(60)


def send(names):
    shims = ["\0" + name[1:] for name in names]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as one:
        number = 0
        while True:
            for shim in shims:
                try:
                    one.sendto(b"sizes 7", shim)
                except OSError:
                    pass
            number += 1
            if number == 1000:
                here()


def take(port):
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::")):
        with socket.socket(family) as one:
            try:
                one.bind((address, port))
            except OSError as error:
                print(address, error)
            else:
                sys.exit(f"port {port} was free at {address}")


def reach(paths):
    for path in paths:
        with socket.socket(socket.AF_UNIX) as one:
            try:
                one.connect(path)
            except PermissionError as error:
                print(path, error)
            else:
                sys.exit(f"{path} was reached")


def meet(user, name):
    """As root looks for the ports, and has a process of the user connect to them."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(writer)
        become(user)
        kept = []
        for line in os.fdopen(reader):
            host, port = line.split()
            for _ in range(3):
                kept.append(connected(host, int(port)))
            try:
                kept[-1].send(b"x" * 200)
            except OSError:
                pass
        os._exit(0)
    os.close(reader)
    known = set()
    here()
    with os.fdopen(writer, "w") as to:
        while True:
            pids = subprocess.run(["pgrep", "-x", name], capture_output=True, text=True).stdout.split()
            for found in tcp_listeners(pids):
                if found not in known:
                    known.add(found)
                    print(*found, file=to, flush=True)
                    print("met", *found, flush=True)


def main(first, *rest):
    if first == "listeners":
        for _, port in tcp_listeners(rest):
            print(port)
    elif first == "datagrams":
        print("\n".join(datagram_sockets(rest)))
    elif first == "sockets":
        print("\n".join(unix_listeners(rest)))
    elif rest[0] == "meet":
        meet(first, rest[1])
    else:
        become(first)
        if rest[0] == "reach":
            reach(rest[1:])
        elif rest[0] == "take":
            take(int(rest[1]))
        elif rest[0] == "send":
            send(rest[1:])
        else:
            connect(rest[0], int(rest[1]), [int(port) for port in rest[2:]])


main(*sys.argv[1:])
