// A module's parameters and buffers as a safetensors file with PyTorch's names and layouts: a state
// dict saved by PyTorch loads here, and the other way round.
//
// The one difference in layout, but for what a WeightsFormat says: a parameter of four dimensions
// is a convolution's weight. The engine holds it channels-last (OHWI; IHWO where the convolution is
// transposed), as it holds images; files hold it as PyTorch does (OIHW; IOHW). Both are the same
// permutation. All else is stored as it is.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "layers/module.h"

namespace engine {

/// What is special about a network's files. A network whose files are not simply its parameters and
/// buffers under their names is one of these beside a Module.
class WeightsFormat {
 public:
  virtual ~WeightsFormat() = default;
  /// Whether files hold this parameter, a matrix, transposed.
  virtual bool transposed(std::string_view name) const = 0;
  /// The name in the module of a file's tensor.
  virtual std::string name_here(std::string_view name_in_file) const = 0;
  /// For a tensor of a file that the module lacks: empty if it may be there with this value, as
  /// saying nothing new, else what is expected instead. `read` gives the file's tensor of a name
  /// here, undefined if there is none.
  virtual std::string objection(std::string_view /*name*/, const Tensor& /*value*/,
                                const std::function<Tensor(std::string_view)>& /*read*/) const {
    return "no such tensor";
  }
};

void save_weights(const std::string& path, const Module& module,
                  const std::map<std::string, std::string>& metadata = {});

/// Copies the file's values into the module's memory, wherever it is. f32 is also read from BF16,
/// F16 and F64. Before anything is changed, names, shapes and dtypes are held against the module:
/// an Error lists every one that is missing, unexpected or does not fit. A WeightsFormat may know a
/// file's tensors by other names, or accept more.
void load_weights(const std::string& path, Module& module);

}  // namespace engine
