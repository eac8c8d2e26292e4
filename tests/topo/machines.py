#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes machines that are not here, for the tests of `swell topo`: of each an hwloc XML file and the parts
of /sys that matter.

usage: machines.py DIR    makes DIR/NAME/{hwloc.xml,sys/} for every machine below, and DIR/subnet.{ibnet,lst}
"""
import os
import sys


class Machine:
    """Two sockets or one; devices below PCI switches (a switch is a root port here)."""

    def __init__(self, name, sockets=2, cores=4):
        self.name, self.sockets, self.cores = name, sockets, cores
        self.devices = []  # (socket, host bridge, switch, pci, kind, dict)
        self.nvlink = None  # MB/s between all pairs of GPUs
        self.gp = 100

    def gpu(self, socket, host, switch, pci, device=0x2330, model="", gts="32.0 GT/s PCIe", width=16):
        self.devices.append((socket, host, switch, pci, "gpu", dict(device=device, model=model, gts=gts, width=width)))

    def hca(self, socket, host, switch, pci, name, gbit=400, layer="InfiniBand", state="4: ACTIVE", guid=0, prefix="fe80:0000:0000:0000"):
        self.devices.append((socket, host, switch, pci, "hca", dict(name=name, gbit=gbit, layer=layer, state=state, guid=guid, prefix=prefix)))

    def net(self, socket, host, switch, pci, name, mbit):
        self.devices.append((socket, host, switch, pci, "net", dict(name=name, mbit=mbit)))

    def next(self):
        self.gp += 1
        return self.gp

    # ---- sysfs

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write(text + "\n")

    def link(self, path, target):
        path, target = os.path.join(self.root, path), os.path.join(self.root, target)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(os.path.relpath(target, os.path.dirname(path)), path)

    def sysfs(self, root):
        self.root = root
        os.makedirs(root)
        for cpu in range(self.sockets * self.cores):
            socket = cpu // self.cores
            self.write(f"devices/system/cpu/cpu{cpu}/topology/physical_package_id", str(socket))
            self.write(f"devices/system/cpu/cpu{cpu}/topology/core_id", str(cpu % self.cores))
            self.write(f"devices/system/cpu/cpu{cpu}/node{socket}/x", "")
        for socket, host, switch, pci, kind, d in self.devices:
            folder = f"devices/pci0000:{host}/0000:{switch}/0000:{pci}"
            self.write(f"{folder}/numa_node", str(socket))
            self.link(f"bus/pci/devices/0000:{pci}", folder)
            if kind == "gpu":
                for key, value in (("class", "0x030200"), ("vendor", "0x10de"), ("device", hex(d["device"])),
                                   ("max_link_speed", d["gts"]), ("max_link_width", str(d["width"]))):
                    self.write(f"{folder}/{key}", value)
            elif kind == "hca":
                self.write(f"{folder}/class", "0x020700")
                self.write(f"{folder}/vendor", "0x15b3")
                ib = f"{folder}/infiniband/{d['name']}"
                port = f"{ib}/ports/1"
                self.write(f"{port}/state", d["state"])
                self.write(f"{port}/rate", f"{d['gbit']} Gb/sec (4X NDR)")
                self.write(f"{port}/link_layer", d["layer"])
                guid = f"{d['guid']:016x}"
                self.write(f"{port}/gids/0", d["prefix"] + ":" + ":".join(guid[i:i + 4] for i in range(0, 16, 4)))
                self.link(f"{ib}/device", folder)
                self.link(f"class/infiniband/{d['name']}", ib)
            else:
                self.write(f"{folder}/class", "0x020000")
                self.write(f"{folder}/vendor", "0x8086")
                net = f"{folder}/net/{d['name']}"
                self.write(f"{net}/operstate", "up")
                self.write(f"{net}/speed", str(d["mbit"]))
                self.link(f"{net}/device", folder)
                self.link(f"class/net/{d['name']}", net)

    # ---- hwloc

    def xml(self):
        all_cpus, all_nodes = (1 << self.sockets * self.cores) - 1, (1 << self.sockets) - 1
        out = ['<?xml version="1.0" encoding="UTF-8"?>', '<!DOCTYPE topology SYSTEM "hwloc2.dtd">', '<topology version="2.0">']
        out.append(f' <object type="Machine" os_index="0" {self.sets(all_cpus, all_nodes)} allowed_cpuset="{all_cpus:#010x}" allowed_nodeset="{all_nodes:#010x}" gp_index="1">')
        gpus = []
        for socket in range(self.sockets):
            cpus = ((1 << self.cores) - 1) << socket * self.cores
            sets = self.sets(cpus, 1 << socket)
            out.append(f'  <object type="Package" os_index="{socket}" {sets} gp_index="{self.next()}">')
            out.append(f'   <object type="NUMANode" os_index="{socket}" {sets} gp_index="{self.next()}" local_memory="1073741824"/>')
            for core in range(self.cores):
                one = self.sets(1 << socket * self.cores + core, 1 << socket)
                index = socket * self.cores + core
                out.append(f'   <object type="Core" os_index="{core}" {one} gp_index="{self.next()}"><object type="PU" os_index="{index}" {one} gp_index="{self.next()}"/></object>')
            here = [d for d in self.devices if d[0] == socket]
            for host in sorted({d[1] for d in here}):
                out.append(f'   <object type="Bridge" gp_index="{self.next()}" bridge_type="0-1" depth="0" bridge_pci="0000:[{host}-ff]">')
                below = [d for d in here if d[1] == host]
                for switch in sorted({d[2] for d in below}):
                    devices = [d for d in below if d[2] == switch]
                    first, last = min(d[3][:2] for d in devices), max(d[3][:2] for d in devices)
                    out.append(f'    <object type="Bridge" gp_index="{self.next()}" bridge_type="1-1" depth="1" bridge_pci="0000:[{first}-{last}]" pci_busid="0000:{switch}" pci_type="0604 [1000:c030] [0000:0000] b0" pci_link_speed="63.015385">')
                    for _, _, _, pci, kind, d in sorted(devices, key=lambda each: each[3]):
                        out += self.device(pci, kind, d, gpus)
                    out.append("    </object>")
                out.append("   </object>")
            out.append("  </object>")
        out.append(" </object>")
        if self.nvlink:
            n = len(gpus)
            indexes = "".join(f"{gp} " for gp in gpus)
            values = "".join(f"{1000000 if a == b else self.nvlink} " for a in range(n) for b in range(n))
            out.append(f' <distances2 type="OSDev" nbobjs="{n}" kind="10" name="NVLinkBandwidth" indexing="gp">')
            out.append(f'  <indexes length="{len(indexes)}">{indexes}</indexes>\n  <u64values length="{len(values)}">{values}</u64values>\n </distances2>')
        return "\n".join(out + ["</topology>", ""])

    @staticmethod
    def sets(cpus, nodes):
        return f'cpuset="{cpus:#010x}" complete_cpuset="{cpus:#010x}" nodeset="{nodes:#010x}" complete_nodeset="{nodes:#010x}"'

    def device(self, pci, kind, d, gpus):
        ids = {"gpu": f'0302 [10de:{d.get("device", 0):04x}]', "hca": "0207 [15b3:1021]", "net": "0200 [8086:1563]"}[kind]
        speed = "63.015385" if kind != "gpu" or d["gts"].startswith("32") else "31.507692"
        lines = [f'     <object type="PCIDev" gp_index="{self.next()}" pci_busid="0000:{pci}" pci_type="{ids} [0000:0000] a1" pci_link_speed="{speed}">']
        if kind == "gpu" and d["model"]:
            gpus.append(self.next())
            lines.append(f'      <object type="OSDev" gp_index="{gpus[-1]}" name="nvml{len(gpus) - 1}" subtype="NVML" osdev_type="1"><info name="GPUModel" value="{d["model"]}"/></object>')
        elif kind == "hca":
            guid = f"{d['guid']:016x}"
            text = ":".join(guid[i:i + 4] for i in range(0, 16, 4))
            lines.append(f'      <object type="OSDev" gp_index="{self.next()}" name="{d["name"]}" osdev_type="3"><info name="NodeGUID" value="{text}"/>'
                         f'<info name="Port1State" value="{d["state"][0]}"/><info name="Port1GID0" value="{d["prefix"]}:{text}"/></object>')
        elif kind == "net":
            lines.append(f'      <object type="OSDev" gp_index="{self.next()}" name="{d["name"]}" osdev_type="2"/>')
        return lines + ["     </object>"]


def machines():
    dgx = Machine("dgx-h100", cores=8)
    hosts = ("17", "3a", "4d", "5a", "97", "ba", "ca", "da")
    for i, host in enumerate(hosts):
        bus = int(host, 16) + 1
        dgx.hca(i // 4, host, f"{host}:01.0", f"{bus:02x}:00.0", f"mlx5_{i}", guid=0x0C42A10300A1B000 + i)
        dgx.gpu(i // 4, host, f"{host}:01.0", f"{bus + 3:02x}:00.0", model="NVIDIA H100 80GB HBM3")
    dgx.net(0, "00", "00:1c.0", "04:00.0", "eno1", 10000)
    dgx.nvlink = 450000
    yield dgx

    pcie = Machine("pcie-4")  # two GPUs below a switch, one alone, one on the other socket
    pcie.gpu(0, "17", "17:01.0", "18:00.0", device=0x2235, gts="16.0 GT/s PCIe")
    pcie.gpu(0, "17", "17:01.0", "19:00.0", device=0x2235, gts="16.0 GT/s PCIe")
    pcie.gpu(0, "3a", "3a:01.0", "3b:00.0", device=0x2235, gts="16.0 GT/s PCIe")
    pcie.gpu(1, "97", "97:01.0", "98:00.0", device=0x2235, gts="16.0 GT/s PCIe")
    pcie.hca(1, "97", "97:01.0", "9a:00.0", "mlx5_0", gbit=100, layer="Ethernet", guid=0x0C42A1FFFEA1C000)
    yield pcie

    rails = Machine("dual-rail")
    for socket, host in enumerate(("17", "97")):
        for n in range(2):
            rails.gpu(socket, host, f"{host}:01.0", f"{int(host, 16) + 1 + n:02x}:00.0", device=0x20B2, gts="16.0 GT/s PCIe")
        rails.hca(socket, host, f"{host}:01.0", f"{int(host, 16) + 4:02x}:00.0", f"mlx5_{socket}", gbit=200, guid=0x0C42A10300A1D000 + socket,
                  prefix=f"fec0:0000:0000:000{socket}")
    yield rails

    plain = Machine("no-infiniband")
    plain.gpu(0, "17", "17:01.0", "18:00.0", device=0x2236, gts="16.0 GT/s PCIe")
    plain.net(0, "00", "00:1c.0", "04:00.0", "eno1", 25000)
    yield plain

    broken = Machine("broken")  # a port down, one that says nothing, a GPU with a mad link, no NUMA
    broken.gpu(0, "17", "17:01.0", "18:00.0", device=0xFFFF, gts="Unknown", width=255)
    broken.gpu(0, "17", "17:01.0", "19:00.0", device=0x2236, gts="16.0 GT/s PCIe")
    broken.hca(0, "3a", "3a:01.0", "3b:00.0", "mlx5_0", state="1: DOWN")
    broken.hca(0, "3a", "3a:01.0", "3c:00.0", "mlx5_1", gbit="none", state="4: ACTIVE", guid=7)
    yield broken

    yield Machine("empty")


def main(folder):
    for machine in machines():
        os.makedirs(os.path.join(folder, machine.name))
        with open(os.path.join(folder, machine.name, "hwloc.xml"), "w") as out:
            out.write(machine.xml())
        machine.sysfs(os.path.join(folder, machine.name, "sys"))
    with open(os.path.join(folder, "subnet.ibnet"), "w") as out:
        out.write('vendid=0x2c9\nswitchguid=0xb8599f0300fc6de4(b8599f0300fc6de4)\n'
                  'Switch\t41 "S-b8599f0300fc6de4"\t\t# "MF0;ib-leaf-17:MQM9700/U1" enhanced port 0 lid 1 lmc 0\n'
                  '[1]\t"H-0c42a10300a1b008"[1](c42a10300a1b000) \t\t# "dgx1 mlx5_0" lid 4 4xNDR\n'
                  '[2]\t"S-b8599f0300fc6de5"[3]\t\t# "MF0;spine:MQM9700/U1" lid 2 4xNDR\n\n'
                  'Ca\t1 "H-0c42a10300a1b008"\t\t# "dgx1 mlx5_0"\n[1](c42a10300a1b000) \t"S-b8599f0300fc6de4"[1]\t\t# lid 4\n')
    with open(os.path.join(folder, "subnet.lst"), "w") as out:
        out.write('{ CA Ports:01 SystemGUID:0c42a10300a1d008 NodeGUID:0c42a10300a1d008 PortGUID:0c42a10300a1d000 VenID:000002C9 DevID:101B0000 Rev:00000000 {rails mlx5_0} LID:0004 PN:01 } '
                  '{ SW Ports:29 SystemGUID:b8599f0300aaaaaa NodeGUID:b8599f0300aaaaaa PortGUID:b8599f0300aaaaaa VenID:000002C9 DevID:D2F00000 Rev:00000000 {MF0;hdr-leaf-2:MQM8700/U1} LID:0001 PN:07 } PHY=4x LOG=ACT SPD=50\n')


if __name__ == "__main__":
    main(sys.argv[1])
