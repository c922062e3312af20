#pragma once
#include "model/config.h"
#include "model/gguf.h"
#include "model/gguf_writer.h"

namespace fs::model {

/// The configuration that a GGUF file's metadata and tensor table say. Embeddings are tied where there is no
/// output.weight; vocab_size is the rows of token_embd.weight. Throws Error(unusable) naming file, key, what
/// was found and what is expected: missing, out of range, contradictory, another architecture, a part of a
/// split model, and every qwen3.* key that is not implemented (RoPE scaling, sliding windows, …), since each
/// may change the maths.
Config parse_gguf_config(const GgufFile& file);

/// Adds general.* and qwen3.* pairs that say `config`, as llama.cpp's converter writes them:
/// parse_gguf_config gives it back (rms_norm_eps and rope_theta rounded to fp32). `name` is general.name;
/// `matrices` how most of the weights are stored (general.file_type).
void add_config(GgufPairs& pairs, const Config& config, std::string_view name, GgmlType matrices);

/// A tensor by its name in a GGUF file: "model.layers.3.mlp.up_proj.weight" → "blk.3.ffn_up.weight".
/// Query and key rows are in the same order in both (rotate-half RoPE), so that nothing is permuted. `name`
/// is one of expected_tensors().
std::string gguf_tensor_name(std::string_view name);

}  // namespace fs::model
