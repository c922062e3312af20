#include "cli/verify.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>

#include "base/error.h"
#include "base/mapped_file.h"

namespace fs::cli {
namespace {

void require(int ok) {
  if (ok != 1) fail(ExitCode::failed, "sha256: the crypto library reports a failure");
}

std::string sha256(std::span<const std::byte> bytes, const Progress& progress) {
  constexpr std::size_t chunk = std::size_t{1} << 24;  // some 10 ms between two calls of progress
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  require(context != nullptr ? EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) : 0);
  for (std::size_t at = 0; at < bytes.size(); at += chunk) {
    if (progress) progress("verify", at, bytes.size());
    const auto piece = bytes.subspan(at, std::min(chunk, bytes.size() - at));
    require(EVP_DigestUpdate(context.get(), piece.data(), piece.size()));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(context.get(), digest, &size));
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string check(const Pin& pin, const std::filesystem::path& path, const Progress& progress) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return "missing";
  const std::uintmax_t bytes = std::filesystem::file_size(path, none);
  if (pin.bytes != 0 && bytes != pin.bytes) return fmt::format("{} bytes, expected {}", bytes, pin.bytes);
  const std::string found = sha256_of_file(path, progress);
  if (found != pin.sha256) return fmt::format("sha256 {}, expected {}", found, pin.sha256);
  return "";
}

}  // namespace

std::string sha256_of_file(const std::filesystem::path& path, const Progress& progress) {
  return sha256(MappedFile::open(path).bytes(), progress);
}

std::string model_hash(const model::Checkpoint& checkpoint, const Progress& progress) {
  const model::Location& location = checkpoint.location();
  if (!location.synthetic.empty()) return fmt::format("synthetic:{}@{}", location.synthetic, location.seed);
  std::set<std::filesystem::path> files;
  for (const auto& tensor : checkpoint.tensors()) files.insert(tensor.file);
  if (files.size() == 1) return "sha256:" + sha256_of_file(*files.begin(), progress);
  std::string digests;
  for (const auto& file : files) digests += sha256_of_file(file, progress) + '\n';
  return "sha256:" + sha256(std::as_bytes(std::span(digests)), {});
}

std::vector<PinCheck> verify_qwen3_0_6b(const std::filesystem::path& directory, const Progress& progress) {
  std::vector<PinCheck> checks;
  for (const Pin& pin : qwen3_0_6b_pins) checks.push_back({pin, check(pin, directory / pin.file, progress)});
  return checks;
}

}  // namespace fs::cli
