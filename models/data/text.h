// Text as a data set: stretches of tokens, each with the tokens that follow.
#pragma once

#include <cstdint>
#include <string>

#include "models/data/dataset.h"

namespace engine {

/// The bytes of a file, or of all files of a folder in the order of their names, as tokens: a
/// vocabulary of the bytes that occur, in their order. The last tenth is the test split. Input and
/// target are i64 [length]. In training a stretch begins anywhere, in the test split every `length`
/// tokens.
DatasetSplits load_text(const std::string& path, int64_t length);

/// Tokens of GPT-2's vocabulary (50257) or a larger one, u16 little-endian, from `folder`/train.bin
/// and `folder`/val.bin.
DatasetSplits load_tokens(const std::string& folder, int64_t length);

/// Made-up text, a function of `seed`: 300000 tokens of 64, each a fixed function of the one before
/// it but for one in ten, which is any.
DatasetSplits make_tokens(int64_t length, uint64_t seed);

}  // namespace engine
