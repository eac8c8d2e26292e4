// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/doctor/elf_symbol.h"

#include <cerrno>
#include <cstring>
#include <elf.h>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <link.h>
#include <optional>

namespace swell::tools::doctor {

namespace {

/// Bytes of a file, with bounds-checked reads.
class Image {
 public:
  explicit Image(std::string bytes) : bytes_(std::move(bytes)) {}

  template <typename T>
  std::optional<T> at(std::uint64_t offset) const {
    if (bytes_.size() < sizeof(T) || offset > bytes_.size() - sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  bool has_text(std::uint64_t offset, const std::string& text) const {
    return offset < bytes_.size() &&
           bytes_.compare(offset, text.size() + 1, text.c_str(), text.size() + 1) == 0;
  }
  /// Returns the text from `offset` to its NUL; nullopt if that is over `max` characters away.
  std::optional<std::string> text_at(std::uint64_t offset, std::size_t max) const {
    if (offset >= bytes_.size()) return std::nullopt;
    const std::size_t end = bytes_.find('\0', offset);
    if (end == std::string::npos || end - offset > max) return std::nullopt;
    return bytes_.substr(offset, end - offset);
  }

 private:
  std::string bytes_;
};

using Header = ElfW(Ehdr);
using Section = ElfW(Shdr);
using Symbol = ElfW(Sym);

constexpr unsigned char kOwnClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

std::optional<Section> section(const Image& image, const Header& header, std::uint64_t index) {
  if (index >= header.e_shnum) return std::nullopt;
  return image.at<Section>(header.e_shoff + index * sizeof(Section));
}

std::optional<Symbol> find_symbol(const Image& image, const Header& header,
                                  const std::string& name) {
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto table = section(image, header, i);
    if (!table || table->sh_type != SHT_DYNSYM) continue;
    const auto names = section(image, header, table->sh_link);
    if (!names) continue;
    for (std::uint64_t offset = 0; offset + sizeof(Symbol) <= table->sh_size;
         offset += sizeof(Symbol)) {
      const auto symbol = image.at<Symbol>(table->sh_offset + offset);
      if (!symbol) break;
      if (symbol->st_shndx != SHN_UNDEF && image.has_text(names->sh_offset + symbol->st_name, name))
        return symbol;
    }
  }
  return std::nullopt;
}

/// A file, and the offset in it at which the value of a symbol begins.
struct SymbolPlace {
  Image image;
  std::uint64_t offset;
};

Result<SymbolPlace> locate(const std::string& path, const std::string& name) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error(fmt::format("it cannot be read: {}", std::strerror(errno)));
  Image image(std::string(std::istreambuf_iterator<char>(in), {}));
  const auto header = image.at<Header>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != kOwnClass || header->e_shentsize != sizeof(Section))
    return Error("it is not a shared object of this machine's kind");
  const auto symbol = find_symbol(image, *header, name);
  if (!symbol) return Error(fmt::format("it has no {}: it is not a plugin of Slurm", name));
  const auto holder = section(image, *header, symbol->st_shndx);
  if (!holder || symbol->st_value < holder->sh_addr)
    return Error(fmt::format("{} lies nowhere in it", name));
  return SymbolPlace{std::move(image), holder->sh_offset + (symbol->st_value - holder->sh_addr)};
}

}  // namespace

Result<std::uint32_t> read_elf_constant(const std::string& path, const std::string& name) {
  const Result<SymbolPlace> place = locate(path, name);
  if (!place) return place.error();
  const auto value = place->image.at<std::uint32_t>(place->offset);
  if (!value) return Error(fmt::format("{} lies nowhere in it", name));
  return *value;
}

Result<std::string> read_elf_text(const std::string& path, const std::string& name) {
  constexpr std::size_t max = 1000;
  const Result<SymbolPlace> place = locate(path, name);
  if (!place) return place.error();
  const auto text = place->image.text_at(place->offset, max);
  if (!text) return Error(fmt::format("{} lies nowhere in it", name));
  return *text;
}

}  // namespace swell::tools::doctor
