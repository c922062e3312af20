#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "model/tensor.h"

namespace fs::model {

// The safetensors format: 8 bytes header length N (little-endian), N bytes of JSON (tensor name → dtype,
// shape, data_offsets; trailing spaces allowed), then the tensors' bytes without gaps. Everything in a file
// is checked before any of it is used: lengths against the file, offsets against each other and against shape
// × dtype.

/// Parses and validates a whole file in memory. The result views `file` (tensors in order of offset), each
/// with `source` as its source. Throws Error(unusable), naming `source` and the tensor, for anything
/// malformed or for a dtype other than BF16, F16 and F32.
std::vector<Tensor> parse_safetensors(std::span<const std::byte> file, const std::string& source);

/// String pairs kept in the header's __metadata__.
using Metadata = std::map<std::string, std::string>;

/// The pairs of a file that parse_safetensors() accepts; none where it has no __metadata__. Throws as that
/// does.
Metadata parse_metadata(std::span<const std::byte> file, const std::string& source);

/// Parses model.safetensors.index.json: (tensor, shard's file name) ordered by shard, then tensor. Shards are
/// plain file names ending in .safetensors, so none can lie outside the index's directory. Throws
/// Error(unusable).
std::vector<std::pair<std::string, std::string>> parse_index(std::string_view json,
                                                             const std::string& source);

/// The tensors of a checkpoint and the mapped files that they view.
struct TensorFiles {
  std::string source;           ///< the weight file or the index, for messages
  std::vector<Tensor> tensors;  ///< by file, then by offset
  std::vector<std::shared_ptr<const MappedFile>> files;
};

/// Maps and validates the weights at `path`: one .safetensors file, or a directory with model.safetensors
/// (which wins, as in Hugging Face transformers) or model.safetensors.index.json and exactly the shards and
/// tensors it lists. Reads headers only. Throws Error(unusable) naming file and tensor.
TensorFiles open_safetensors(const std::filesystem::path& path);

/// Receives a tensor's bytes, in order, in any number of pieces.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// Replaces `path` by a safetensors file with these tensors. The bytes depend on the arguments alone. Tensors
/// lie in the given order, fp32 ones before 16-bit ones, so that all elements are aligned. Throws
/// Error(failed) if it cannot be written (the old file then stays as it was), if a name comes twice, bytes do
/// not fit a shape, or a dtype is not of this format.
void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors,
                       const Metadata& metadata = {});

/// The same for tensors that are too large to hold: their `bytes` are ignored and produce(tensor, sink) is
/// called once for each, in file order, to hand over exactly product(shape) elements.
void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors,
                       const Metadata& metadata,
                       const std::function<void(const Tensor& tensor, const ByteSink& sink)>& produce,
                       AtomicFile::Existing existing = AtomicFile::Existing::replace);

}  // namespace fs::model
