// A module's parameters and buffers as a safetensors file with PyTorch's names and layouts: a state
// dict saved by PyTorch loads here, and the other way round.
//
// The one difference in layout: a parameter of four dimensions is a convolution's weight. The
// engine holds it channels-last (OHWI; IHWO where the convolution is transposed), as it holds
// images; files hold it as PyTorch does (OIHW; IOHW). Both are the same permutation. All else is
// stored as it is.
#pragma once

#include <map>
#include <string>

#include "layers/module.h"

namespace engine {

void save_weights(const std::string& path, const Module& module,
                  const std::map<std::string, std::string>& metadata = {});

/// Copies the file's values into the module's memory, wherever it is. f32 is also read from BF16,
/// F16 and F64. Before anything is changed, names, shapes and dtypes are held against the module:
/// an Error lists every one that is missing, unexpected or does not fit.
void load_weights(const std::string& path, Module& module);

}  // namespace engine
